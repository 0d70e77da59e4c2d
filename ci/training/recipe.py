"""The recipe: losses, and steps by one process or several, each with a GPU.

Weights are float32 masters; on a GPU copies of them in bf16 compute. Shapes: B rows, N image tokens, C channels.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ci.training.network import arrange, decode, encode, fold, views_of
from ci.training.rows import NUMBERS, Batch, Pages, number_ids
from ci.training.start import begin
from pytest_dsocr.engine.model import EngineModel, model_class
from pytest_dsocr.engine.weights import read_weights
from pytest_dsocr.layers.attention import sdpa
from pytest_dsocr.models.architecture import Architecture

STATE_FILES = 3
LOG_EVERY = 10
WORD_WEIGHT, BALANCE_WEIGHT, TEACHER_WEIGHT = 2.0, 0.02, 2.0
COORDINATE_SPREAD = 1.0
"""Standard deviation of a coordinate's target, in 1/999 of the page: neighbours are nearly right."""
POOL = 64


@dataclass(frozen=True)
class Recipe:
    """What is trained, from what, and how fast it learns. Shares are of the steps or, if it ends first, the time."""

    architecture: Architecture
    tokenizer_file: Path
    start: Path
    """A folder of weights; what has the same name and shape is taken over."""
    teacher: Path | None = None
    """A checkpoint whose vision tokens are imitated at first, of a model with the same decoder."""
    steps: int = 100_000
    minutes: float = 8.0
    batch_pages: int = 16
    """Of each process."""
    learning_rate: float = 1e-3
    last_rate: float = 0.1
    """Factor of the learning rate at the end."""
    level_share: float = 0.6
    """Share after which the learning rate falls."""
    warmup_steps: int = 100
    lead: tuple[float, float] = (0.05, 0.3)
    """The decoder reads the teacher's tokens up to the first share, and only the model's own from the second on."""
    taught: float = 0.8
    """Share after which the teacher is not imitated any more."""
    rehearsals: int = 1
    """Steps in which the decoder alone learns, from vision tokens of earlier steps."""
    weight_decay: float = 0.02
    seed: int = 1
    first_step: int = 0
    """Number of the first step: pages follow from it."""
    grids: tuple[tuple[int, int], ...] = ()
    """Grids of the pages; by the generator's shares if empty."""


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
        self.dtype = torch.bfloat16 if on_gpu else torch.float32
        model = _empty(recipe.architecture, torch.float32, torch.device("cpu"))
        self.new = begin(model, read_weights(recipe.start), recipe.seed)
        self.model = fold(model.to(device)).requires_grad_()
        named = [*self.model.named_parameters()]
        decayed = [one for name, one in named if one.dim() > 1 and "embed" not in name and "query" not in name]
        held = {id(one) for one in decayed}
        self.flats = [Flat(decayed), Flat([one for _, one in named if id(one) not in held])]
        self.names = [[name for name, one in named if (id(one) in held) == is_held] for is_held in (True, False)]
        self.model.to(self.dtype)
        groups = [{"params": [flat.master], "weight_decay": decay * recipe.weight_decay}
                  for flat, decay in zip(self.flats, (1, 0), strict=True)]  # fmt: skip
        self.optimiser = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.97), fused=on_gpu)
        self.numbers: Tensor | None = None
        self.teacher = _teacher(recipe.teacher, self.dtype, device) if recipe.teacher else None
        self.pool: list[tuple[Tensor, Batch]] = []
        self.draw = Random(recipe.seed)

    def rate(self) -> float:
        """Return the learning rate."""
        left = (1 - self.done) / max(1 - self.recipe.level_share, 1e-6)
        factor = self.recipe.last_rate + (1 - self.recipe.last_rate) * min(1.0, max(0.0, left))
        return self.recipe.learning_rate * factor * min(1.0, (self.step + 1) / self.recipe.warmup_steps)

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """Take one step on a batch that is on the device; return its losses, still there."""
        found, vision = self.losses(batch)
        self._update(found["loss"])
        if len(self.pool) == POOL:
            self.pool.pop(self.draw.randrange(POOL))
        self.pool.append((vision.detach(), batch._replace(pages=batch.pages[:0])))
        for _ in range(self.recipe.rehearsals):
            vision, kept = self.draw.choice(self.pool)
            again = self._of_output(vision, kept)
            self._update(again["text"] + again["coordinates"] + BALANCE_WEIGHT * again["imbalance"])
        self.step += 1
        return found

    def losses(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """Compute the losses of the output and of the vision tokens, and return these ``[B, N, C]`` too."""
        crops, wholes = views_of(batch)
        own = self._vision(self.model, batch, crops, wholes)
        read, apart = own, own.new_zeros(())
        weight = TEACHER_WEIGHT * max(0.0, 1 - self.done / self.recipe.taught) if self.recipe.taught else 0.0
        if self.teacher is not None and weight:
            with torch.no_grad():
                shown = self._vision(self.teacher, batch, crops, wholes, arranged_as=self.model)
            apart = _apart(own.float(), shown.float())
            first, last = self.recipe.lead
            lead = min(1.0, max(0.0, (last - self.done) / max(last - first, 1e-6)))
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

    def _vision(self, model: EngineModel, batch: Batch, crops: Tensor, wholes: Tensor,
                arranged_as: EngineModel | None = None) -> Tensor:  # fmt: skip
        of_crops = encode(model, crops) if len(crops) else crops.new_zeros((0, 1, 1))
        return arrange(arranged_as or model, batch, of_crops, encode(model, wholes))

    def _of_output(self, vision: Tensor, batch: Batch) -> dict[str, Tensor]:
        hidden, imbalance = decode(self.model, batch.ids, vision)
        hidden = hidden.flatten(0, 1)
        texts = self.model.lm_head(hidden[batch.text_at])
        numbers = self.model.lm_head(hidden[batch.number_at]).log_softmax(dim=-1)[:, self._numbers()]
        right, asked = numbers.argmax(dim=-1), max(len(batch.number), 1)
        return {
            "text": F.cross_entropy(texts, batch.text),
            "coordinates": -(_near(batch.number) * numbers).sum() / asked,
            "imbalance": imbalance,
            "text right": (texts.argmax(dim=-1) == batch.text).float().mean(),
            "box error": (right - batch.number).abs().sum() / asked,
        }

    def _numbers(self) -> Tensor:
        if self.numbers is None:
            import tokenizers

            ids = number_ids(tokenizers.Tokenizer.from_file(str(self.recipe.tokenizer_file)))
            self.numbers = torch.tensor(ids, device=self.device)
        return self.numbers

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
        values = torch.cat([values, values.new_tensor([max(passed, self.step / self.recipe.steps)])])
        if dist.is_initialized():
            dist.all_reduce(values)
            values /= dist.get_world_size()
        *losses, self.done = values.tolist()
        return dict(zip(found, losses, strict=True))

    def state(self) -> dict[str, Tensor]:
        """Return the float32 weights."""
        pairs = zip(self.names, self.flats, strict=True)
        return {name: value for names, flat in pairs for name, value in zip(names, flat.values, strict=True)}

    def save(self, folder: Path) -> None:
        """Write the float32 weights in a few files."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().cpu().clone() for name, value in sorted(self.state().items())}
        for n in range(STATE_FILES):
            part = {name: state[name] for name in [*state][n::STATE_FILES]}
            save_file(part, folder / f"model-{n + 1:05}-of-{STATE_FILES:05}.safetensors")


def train(training: Training, workers: int) -> Iterator[str]:
    """Take steps until the last one, or the end of the time; yield lines about the losses."""
    recipe, rank, world = training.recipe, *_place()
    pages = Pages(
        recipe.architecture.family, recipe.tokenizer_file, recipe.batch_pages, rank, world, grids=recipe.grids
    )
    loader = DataLoader(
        pages, batch_size=None, sampler=range(recipe.first_step, recipe.first_step + recipe.steps), num_workers=workers,
        pin_memory=training.device.type == "cuda", prefetch_factor=2 if workers else None,
    )  # fmt: skip
    batches, since = iter(loader), time.monotonic()
    training.begun = time.monotonic()
    for drawn in batches:
        found = training.learn(drawn.to(training.device))
        is_last = training.step == recipe.steps
        if is_last or training.step % LOG_EVERY == 0 or training.step == 1:
            told = ", ".join(f"{name} {value:.3f}" for name, value in training.look(found).items())
            passed, since = time.monotonic() - since, time.monotonic()
            yield f"step {training.step} ({training.done:.0%}, {passed:.1f} s, rate {training.rate():.1e}): {told}"
        if is_last or training.done >= 1:
            break


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _empty(arch: Architecture, dtype: torch.dtype, device: torch.device) -> EngineModel:
    return model_class(arch).empty(arch, sdpa, device, dtype)


def _teacher(folder: Path, dtype: torch.dtype, device: torch.device) -> EngineModel:
    model = _empty(Architecture.from_folder(folder), torch.float32, torch.device("cpu"))
    model.load_state_dict(read_weights(folder))
    return fold(model.to(device, dtype))


def _apart(own: Tensor, shown: Tensor) -> Tensor:
    """Return the mean over all tokens of the distance squared, as a share of the shown token's square."""
    return ((own - shown).square().mean(dim=-1) / shown.square().mean(dim=-1).clamp(min=1e-3)).mean()


def _near(values: Tensor) -> Tensor:
    """Return a target over all coordinates for each of ``values``: most on it, the rest beside it."""
    distance = torch.arange(NUMBERS, device=values.device) - values[:, None]
    weights = torch.exp(-0.5 * (distance / COORDINATE_SPREAD) ** 2)
    return weights / weights.sum(dim=1, keepdim=True)
