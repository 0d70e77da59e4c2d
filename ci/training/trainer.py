"""The model while it learns: bf16 weights on the GPU, float32 masters behind them, kept in a folder between runs."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ci.training.batch import Asked, Batch
from ci.training.encoder import encode_from_graphs, encode_levels
from ci.training.losses import AnswerLosses, Ids, VisionLosses, answer_losses, vision_losses
from ci.training.network import Heads, forward, new_model, speak
from ci.training.recipe import SEED, Schedule, architecture
from ci.training.vocabulary import mini_vocabulary, number_ids
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.foundation.errors import DsocrError

MASTERS = "masters-{}.safetensors"
MASTER_FILES = 4
OPTIMISER = "optimiser.pt"
STATE = "training.json"
SAVING = "saving"
BETAS = (0.9, 0.97)
BROKEN = (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, SafetensorError, UnpicklingError)
"""What reading a damaged training raises."""


class Trainer:
    """A model, the heads that only training uses, and their optimiser.

    Args:
        schedule: how the learning rate and the losses' weights go.
        device: in bf16 on a GPU, rotary frequencies included, as the vendor's ``model.to(torch.bfloat16)`` has them;
            in float32 on the CPU.
    """

    def __init__(self, schedule: Schedule, device: torch.device) -> None:
        arch = architecture()
        backend = mini_vocabulary()
        numbers = torch.tensor(number_ids(backend))
        self.schedule, self.device, self.step = schedule, device, 0
        self.ids = Ids(numbers.to(device), Tokenizer.over(backend).special.pad)
        model, heads = new_model(arch, numbers, SEED), _new_heads(arch.decoder.hidden_size)
        self.masters = {name: nn.Parameter(p.detach().clone().to(device)) for name, p in _named(model, heads).items()}
        on_gpu = device.type == "cuda"
        dtype = torch.bfloat16 if on_gpu else torch.float32
        self.model, self.heads = model.to(device, dtype).requires_grad_(), heads.to(device, dtype)
        self.encode = encode_from_graphs(self.model, schedule.batch_pages) if on_gpu else encode_levels(self.model)
        self.optimiser = _optimiser(self.masters, schedule)
        self.warm_since = 0
        """The step at which the optimiser began to gather its statistics."""
        self._gradients = {name: torch.empty_like(master) for name, master in self.masters.items()}
        self._pool: list[tuple[Tensor, Asked]] = []
        self._draw = random.Random(SEED)

    @classmethod
    def open(cls, folder: Path, schedule: Schedule, device: torch.device) -> Trainer:
        """Go on from ``folder``, or begin anew where it holds no training.

        Without the optimiser's file the learning rate is warmed up again. What is rehearsed is gathered anew.

        Raises:
            DsocrError: where what it holds is damaged, or is the training of another model.
        """
        trainer = cls(schedule, device)
        if (folder / STATE).is_file():
            try:
                trainer._load(folder)
            except BROKEN as error:
                reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
                raise DsocrError(f"{folder} holds no training of this model ({reason}); give another folder") from error
        return trainer

    def learn(self, batch: Batch) -> tuple[AnswerLosses, VisionLosses]:
        """Take one step on a batch that lies on the device, and rehearse as often as the schedule says."""
        seen = forward(self.model, self.encode, batch)
        of_answer = answer_losses(self.model, seen, batch.asked, self.ids)
        of_vision = vision_losses(self.model, self.heads, seen, batch.asked, self.ids)
        self._update(of_answer.total() + of_vision.total(self.schedule.word_weight(self.step)))
        self._remember(seen.vision.detach(), batch.asked)
        for _ in range(self.schedule.rehearsals_at(self.step)):
            self._rehearse()
        self.step += 1
        return of_answer, of_vision

    def _remember(self, vision: Tensor, asked: Asked) -> None:
        if len(self._pool) == self.schedule.pool_batches:
            self._pool.pop(self._draw.randrange(len(self._pool)))
        self._pool.append((vision, asked))

    def _rehearse(self) -> None:
        """Let the decoder alone learn, from vision tokens of an earlier step."""
        vision, asked = self._draw.choice(self._pool)
        self._update(answer_losses(self.model, speak(self.model, vision, asked), asked, self.ids).total())

    def _update(self, loss: Tensor) -> None:
        """Step the masters of whatever has a gradient, and hand them to the parameters that compute."""
        loss.backward()
        learnt = {name: p for name, p in _named(self.model, self.heads).items() if p.grad is not None}
        for name, master in self.masters.items():
            master.grad = self._gradients[name] if name in learnt else None
        for group in self.optimiser.param_groups:
            group["lr"] = self.schedule.learning_rate(self.step, self.step - self.warm_since)
        computing: list[Tensor] = [*learnt.values()]
        masters: list[Tensor] = [self.masters[name] for name in learnt]
        with torch.no_grad():
            torch._foreach_copy_(
                [self._gradients[name] for name in learnt], [p.grad for p in computing if p.grad is not None]
            )
            torch.nn.utils.clip_grad_norm_(masters, self.schedule.gradient_norm)
            self.optimiser.step()
            torch._foreach_copy_(computing, masters)
        for parameter in computing:
            parameter.grad = None

    def save(self, folder: Path) -> None:
        """Keep everything in ``folder``, whose files are replaced only when all new ones are written."""
        saving = folder / SAVING
        saving.mkdir(parents=True, exist_ok=True)
        names = sorted(self.masters)
        for n in range(MASTER_FILES):
            part = {name: self.masters[name].detach().cpu() for name in names[n::MASTER_FILES]}
            save_file(part, saving / MASTERS.format(n))
        torch.save(self.optimiser.state_dict(), saving / OPTIMISER)
        state = {"step": self.step, "schedule": asdict(self.schedule)}
        (saving / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        for file in sorted(saving.iterdir()):
            file.replace(folder / file.name)
        saving.rmdir()

    def _load(self, folder: Path) -> None:
        found: dict[str, Tensor] = {}
        for n in range(MASTER_FILES):
            found |= load_file(folder / MASTERS.format(n))
        if _shapes(found) != _shapes(self.masters):
            raise ValueError("its parameters have other names or shapes")
        with torch.no_grad():
            for name, parameter in _named(self.model, self.heads).items():
                self.masters[name].copy_(found[name])
                parameter.copy_(found[name])
        self.step = self.warm_since = int(json.loads((folder / STATE).read_text(encoding="utf-8"))["step"])
        if (folder / OPTIMISER).is_file():
            self.optimiser.load_state_dict(torch.load(folder / OPTIMISER, map_location=self.device))
            self.warm_since = 0


def _named(model: nn.Module, heads: nn.Module) -> dict[str, nn.Parameter]:
    """Give all parameters by the names of their masters."""
    return dict(model.named_parameters()) | {f"heads.{name}": p for name, p in heads.named_parameters()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _new_heads(width: int) -> Heads:
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return Heads(width)


def _optimiser(masters: Mapping[str, nn.Parameter], schedule: Schedule) -> torch.optim.Optimizer:
    decayed = [p for name, p in masters.items() if p.dim() > 1 and "embed" not in name]
    others = [p for name, p in masters.items() if p.dim() <= 1 or "embed" in name]
    groups = [
        {"params": decayed, "weight_decay": schedule.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.peak_learning_rate, betas=BETAS, fused=True)


def export(training: Path, folder: Path) -> None:
    """Write what was trained in ``training`` as a checkpoint folder, in bf16.

    Raises:
        DsocrError: where ``training`` holds none, or ``folder`` holds weights already.
    """
    if not (training / STATE).is_file():
        raise DsocrError(f"{training} holds no training; run: python -m ci.training.train {training}")
    model = Trainer.open(training, Schedule(), torch.device("cpu")).model
    state = {name: tensor.detach().to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    write_checkpoint(folder, model.arch, state, mini_vocabulary())
