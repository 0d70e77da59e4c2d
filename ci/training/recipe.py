"""The recipe: losses, and steps by one process or several, each with a GPU.

Weights are float32 masters; on a GPU copies of them in bf16 compute. Shapes: B rows, N image tokens, C channels.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import tokenizers
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ci.training.network import arrange, decode, encode, fold, views_of
from ci.training.rows import NUMBERS, TOKENIZER, Batch, Pages, number_ids
from ci.training.start import begin
from pytest_dsocr.engine.model import EngineModel, model_class
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.weights import read_weights
from pytest_dsocr.layers.attention import sdpa
from pytest_dsocr.models.architecture import Architecture

LOG_EVERY, MOST_STEPS = 10, 10**6
LEVEL_SHARE, LAST_RATE = 0.6, 0.15
"""Share of the time after which the learning rate falls, and its factor at the end."""
TAUGHT, LEAD_FROM, LEAD_UP_TO = 0.8, 0.05, 0.3
"""Shares of the time: the teacher is imitated up to the first.

The decoder reads the teacher's tokens up to the second, and only the model's own from the third on.
"""
WORD_WEIGHT, BALANCE_WEIGHT, TEACHER_WEIGHT, WEIGHT_DECAY = 2.0, 0.02, 2.0, 0.02
COORDINATE_SPREAD = 1.0
"""Standard deviation of a coordinate's target, in 1/999 of the page: neighbours are nearly right."""
POOL = 64
"""Number of earlier steps from which the decoder rehearses."""
SEED = 1


@dataclass(frozen=True)
class Recipe:
    """A model to train, and for how long."""

    architecture: Architecture
    teacher: Path | None = None
    """A checkpoint with the same decoder, which has vision tokens to imitate at first."""
    minutes: float = 8.0
    batch_pages: int = 16
    """Pages of a step, for each process."""
    learning_rate: float = 1e-3
    warmup_steps: int = 100


class Flat:
    """Parameters side by side: one float32 master, with one gradient, that computes for all of them."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.master = nn.Parameter(torch.cat([one.detach().float().flatten() for one in parameters]))
        self.master.grad = torch.zeros_like(self.master)
        self.values, self.gradients = self._views(self.master.data), self._views(self.master.grad)

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = flat.split([one.numel() for one in self.parameters])
        return [part.view(one.shape) for part, one in zip(parts, self.parameters, strict=True)]

    def gather(self) -> None:
        """Move the parameters' gradients into the master's."""
        pairs = [(own, one.grad) for own, one in zip(self.gradients, self.parameters, strict=True)]
        for own, gradient in pairs:
            if gradient is None:
                own.zero_()
        known = [(own, gradient) for own, gradient in pairs if gradient is not None]
        torch._foreach_copy_([own for own, _ in known], [gradient for _, gradient in known])
        for one in self.parameters:
            one.grad = None

    def publish(self) -> None:
        """Copy the master into the parameters."""
        with torch.no_grad():
            torch._foreach_copy_([one.data for one in self.parameters], self.values)


class Training:
    """A model while it learns."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self.recipe, self.device, self.step, self.done, self.begun = recipe, device, 0, 0.0, time.monotonic()
        on_gpu = device.type == "cuda"
        dtype = torch.bfloat16 if on_gpu else torch.float32
        model = _empty(recipe.architecture)
        begin(model, read_weights(MINI_FOLDER), SEED)
        self.model = fold(model.to(device)).requires_grad_()
        named = [*self.model.named_parameters()]
        decayed = {name for name, one in named if one.dim() > 1 and "embed" not in name and "query" not in name}
        self.flats = [Flat([one for name, one in named if (name in decayed) == is_in]) for is_in in (True, False)]
        self.model.to(dtype)
        groups = [{"params": [flat.master], "weight_decay": decay}
                  for flat, decay in zip(self.flats, (WEIGHT_DECAY, 0.0), strict=True)]  # fmt: skip
        self.optimiser = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.97), fused=on_gpu)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
        self.numbers = torch.tensor(number_ids(self.tokenizer), device=device)
        self.teacher = _teacher(recipe.teacher).to(device, dtype) if recipe.teacher else None
        self.pool: list[tuple[Tensor, Batch]] = []
        self.draw = Random(SEED)

    def rate(self) -> float:
        """Return the learning rate."""
        left = (1 - self.done) / (1 - LEVEL_SHARE)
        factor = LAST_RATE + (1 - LAST_RATE) * min(1.0, max(0.0, left))
        return self.recipe.learning_rate * factor * min(1.0, (self.step + 1) / self.recipe.warmup_steps)

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step on a batch that is on the device, and one of the decoder alone on an earlier batch's tokens.

        Returns the losses of the first, which stay on the device.
        """
        found, vision = self.losses(batch)
        self._update(found["loss"])
        if len(self.pool) == POOL:
            self.pool.pop(self.draw.randrange(POOL))
        self.pool.append((vision.detach(), batch._replace(pages=batch.pages[:0])))
        again = self._of_output(*self.draw.choice(self.pool))
        self._update(again["text"] + again["coordinates"] + BALANCE_WEIGHT * again["imbalance"])
        self.step += 1
        return found

    def losses(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """Compute the losses of the output and of the vision tokens, and return these ``[B, N, C]`` too."""
        crops, wholes = views_of(batch)
        own = self._vision(self.model, batch, crops, wholes)
        read, apart = own, own.new_zeros(())
        weight = TEACHER_WEIGHT * max(0.0, 1 - self.done / TAUGHT)
        if self.teacher is not None and weight:
            with torch.no_grad():
                shown = self._vision(self.teacher, batch, crops, wholes)
            apart = _apart(own.float(), shown.float())
            lead = min(1.0, max(0.0, (LEAD_UP_TO - self.done) / (LEAD_UP_TO - LEAD_FROM)))
            led = torch.rand(len(own), generator=torch.Generator().manual_seed(self.step)) < lead
            read = torch.where(led.to(self.device, non_blocking=True)[:, None, None], shown, own)
        found = self._of_output(read, batch)
        said = self.model.lm_head(self.model.model.norm(own.flatten(0, 1)[batch.word_at]))
        found["words"] = F.cross_entropy(said, batch.word, reduction="sum") / max(len(batch.word), 1)
        found["words right"] = (said.argmax(dim=-1) == batch.word).sum() / max(len(batch.word), 1)
        found["apart"] = apart
        found["loss"] = (
            found["text"] + found["coordinates"] + BALANCE_WEIGHT * found["imbalance"]
            + WORD_WEIGHT * found["words"] + weight * apart
        )  # fmt: skip
        return found, read

    def _vision(self, model: EngineModel, batch: Batch, crops: Tensor, wholes: Tensor) -> Tensor:
        of_crops = encode(model, crops) if len(crops) else crops.new_zeros((0, 1, 1))
        return arrange(self.model, batch, of_crops, encode(model, wholes))

    def _of_output(self, vision: Tensor, batch: Batch) -> dict[str, Tensor]:
        hidden, imbalance = decode(self.model, batch.ids, vision)
        hidden = hidden.flatten(0, 1)
        texts = self.model.lm_head(hidden[batch.text_at])
        numbers = self.model.lm_head(hidden[batch.number_at]).log_softmax(dim=-1)[:, self.numbers]
        right, asked = numbers.argmax(dim=-1), max(len(batch.number), 1)
        return {
            "text": F.cross_entropy(texts, batch.text),
            "coordinates": -(_near(batch.number) * numbers).sum() / asked,
            "imbalance": imbalance,
            "text right": (texts.argmax(dim=-1) == batch.text).float().mean(),
            "box error": (right - batch.number).abs().sum() / asked,
        }

    def _update(self, loss: Tensor) -> None:
        loss.backward()
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()
        gradients = []
        for flat in self.flats:
            flat.gather()
            gradient = flat.master.grad
            assert gradient is not None
            if dist.is_initialized():
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()
            gradients.append(gradient.nan_to_num_(0.0, 0.0, 0.0))
        nn.utils.clip_grad_norm_([flat.master for flat in self.flats], 1.0)
        self.optimiser.step()
        for flat in self.flats:
            flat.publish()

    def look(self, found: Mapping[str, Tensor]) -> dict[str, float]:
        """Average the losses over all processes, and move the share that is done. The host waits here."""
        values = torch.stack([value.detach().float() for value in found.values()])
        passed = (time.monotonic() - self.begun) / 60 / self.recipe.minutes
        values = torch.cat([values, values.new_tensor([passed])])
        if dist.is_initialized():
            dist.all_reduce(values)
            values /= dist.get_world_size()
        *losses, self.done = values.tolist()
        return dict(zip(found, losses, strict=True))

    def save(self, folder: Path) -> None:
        """Write a checkpoint in bf16."""
        state = {name: one.detach().to("cpu", torch.bfloat16) for name, one in self.model.named_parameters()}
        write_checkpoint(folder, self.recipe.architecture, state, self.tokenizer)


def train(training: Training, workers: int) -> Iterator[str]:
    """Take steps until the time is over; yield lines about the losses."""
    recipe = training.recipe
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    pages = Pages(recipe.architecture.family, recipe.batch_pages, rank, world)
    loader = DataLoader(
        pages, batch_size=None, sampler=range(MOST_STEPS), num_workers=workers,
        pin_memory=training.device.type == "cuda", prefetch_factor=2 if workers else None,
    )  # fmt: skip
    training.begun = time.monotonic()
    for drawn in loader:
        found = training.learn(drawn.to(training.device))
        if training.step % LOG_EVERY == 0 or training.step == 1:
            told = ", ".join(f"{name} {value:.3f}" for name, value in training.look(found).items())
            yield f"step {training.step} ({training.done:.0%}, rate {training.rate():.1e}): {told}"
        if training.done >= 1:
            break


def _empty(arch: Architecture) -> EngineModel:
    return model_class(arch).empty(arch, sdpa, torch.device("cpu"), torch.float32)


def _teacher(folder: Path) -> EngineModel:
    model = _empty(Architecture.from_folder(folder))
    model.load_state_dict(read_weights(folder))
    return fold(model)


def _apart(own: Tensor, shown: Tensor) -> Tensor:
    """Return the mean over all tokens of the distance squared, as a share of the shown token's square."""
    return ((own - shown).square().mean(dim=-1) / shown.square().mean(dim=-1).clamp(min=1e-3)).mean()


def _near(values: Tensor) -> Tensor:
    """Return a target over all coordinates for each of ``values``: most on the value, the rest on its neighbours."""
    distance = torch.arange(NUMBERS, device=values.device) - values[:, None]
    weights = torch.exp(-0.5 * (distance / COORDINATE_SPREAD) ** 2)
    return weights / weights.sum(dim=1, keepdim=True)
