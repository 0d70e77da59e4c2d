"""The recipe: the engine's own stages with gradients, two losses, and a training that goes on where it ended.

Shapes: B rows, T tokens, C hidden channels.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import tokenizers
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ci.training.rows import IGNORED, PageMaker, Pages, Row, collate
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.attention import sdpa
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.experts import Router
from pytest_dsocr.engine.fusion import scatter
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.foundation.errors import DsocrError

STATE = "training.pt"
WORD_WEIGHT, BALANCE_WEIGHT = 2.0, 0.02
EMBEDDING_STD, HEAD_STD, BRANCH_SCALE = 0.3, 0.02, 0.3
LAST_OF_BRANCH = ("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight", "lin2.weight")
EMBEDDINGS = ("embed_tokens.weight", "image_newline", "view_seperator", "class_embedding", "position_embedding.weight")
LOG_EVERY, SAVE_EVERY = 25, 500


@dataclass(frozen=True)
class Recipe:
    """What is trained on what, and how fast it learns."""

    folder: Path
    """Where ``config.json`` (the architecture) and ``tokenizer.json`` are; weights are not read."""
    make_page: PageMaker
    steps: int = 10_000
    batch_pages: int = 16
    presets: tuple[str, ...] = ("gundam", "gundam", "gundam", "gundam", "gundam", "gundam", "base", "large", "small")
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    weight_decay: float = 0.02
    seed: int = 1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a rise, then half a cosine to a hundredth."""
        done = step / self.steps
        return self.learning_rate * min((step + 1) / self.warmup_steps, 0.505 + 0.495 * math.cos(math.pi * done))


class LearningPipeline(Pipeline[KVCache]):
    """The engine's stages, with gradients."""

    @contextmanager
    def running(self, stage: str) -> Iterator[None]:
        """Open a stage; on a GPU its products are in bf16."""
        with torch.autocast("cuda", torch.bfloat16) if self.autocast else nullcontext():
            yield


class Training:
    """A model while it learns: float32 weights, and their optimiser."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self.recipe, self.device, self.step = recipe, device, 0
        self.arch, self.pad = Architecture.from_folder(recipe.folder), Tokenizer.from_folder(recipe.folder).special.pad
        self.backend = tokenizers.Tokenizer.from_file(str(recipe.folder / "tokenizer.json"))
        self.model = new_model(self.arch, recipe.seed).to(device)
        self.pipeline = LearningPipeline(self.model, Stages(device), autocast=device.type == "cuda")
        self.imbalances: list[Tensor] = []
        for module in self.model.modules():
            if isinstance(module, Router):
                module.register_forward_hook(self._note_imbalance)
        named = [*self.model.named_parameters()]
        decayed = [p for name, p in named if p.dim() > 1 and "embed" not in name]
        others = [p for name, p in named if p.dim() <= 1 or "embed" in name]
        groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.97))

    def learn(self, rows: Sequence[Row]) -> dict[str, float]:
        """Take one step on a batch; return its losses, and the share of tokens and of words that were right."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(self.step)
        found = self.losses(rows)
        loss = found["answer"] + WORD_WEIGHT * found["words"] + BALANCE_WEIGHT * found["imbalance"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.step += 1
        return {name: value.item() for name, value in found.items()}

    def losses(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Compute the losses of the decoder on the answers, and of the vision tokens on their words."""
        self.imbalances.clear()
        features = [self._features(row) for row in rows]
        batch = collate(rows, self.pad)
        ids, mask, targets = (one.to(self.device) for one in (batch.ids, batch.mask, batch.targets))
        with self.pipeline.running("prefill"):
            vision = torch.cat(features)
            embeds = scatter(self.model.embed(ids), mask, vision, len(vision))
            logits = self.model.decode(embeds, self.model.new_cache(), all_logits=True)
            seen = [one[row.word_at.to(self.device)] for one, row in zip(features, rows, strict=True)]
            named = self.model.lm_head(self.model.model.norm(torch.cat(seen)))
        words = torch.cat([row.word for row in rows]).to(self.device)
        asked = targets != IGNORED
        return {
            "answer": F.cross_entropy(logits[asked], targets[asked]),
            "words": F.cross_entropy(named, words, reduction="sum") / max(len(words), 1),
            "imbalance": torch.stack(self.imbalances).mean() if self.imbalances else logits.new_zeros(()),
            "answer right": (logits[asked].argmax(dim=-1) == targets[asked]).float().mean(),
            "words right": (named.argmax(dim=-1) == words).sum() / max(len(words), 1),
        }

    def _features(self, row: Row) -> Tensor:
        """Return a page's vision tokens ``[tokens, C]``; of a blind row the separator, which is last, is zero."""
        [vision] = self.pipeline.vision(row.inputs.to(self.device))
        fused = vision.vision_fusion
        return torch.cat([fused[:-1], torch.zeros_like(fused[-1:])]) if row.is_blind else fused

    def _note_imbalance(self, router: Router, given: tuple[Tensor], chosen: tuple[Tensor, Tensor]) -> None:
        """Note how unevenly experts are used: 1 where all are used alike, their number where one does everything."""
        scores = F.linear(given[0].float(), router.weight.float()).softmax(dim=-1).mean(dim=0)
        used = torch.bincount(chosen[0].flatten(), minlength=len(scores)) / chosen[0].numel()
        self.imbalances.append(len(scores) * (scores * used).sum())

    def save(self, out: Path) -> None:
        """Keep everything in ``out``; the file there is replaced when the new one is written."""
        out.mkdir(parents=True, exist_ok=True)
        state = {"step": self.step, "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, out / f"{STATE}.new")
        (out / f"{STATE}.new").replace(out / STATE)

    def resume(self, out: Path) -> None:
        """Go on from what ``out`` holds, if anything; raise ``DsocrError`` where that is no training of this model."""
        if not (out / STATE).is_file():
            return
        try:
            state = torch.load(out / STATE, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step = int(state["step"])
        except (OSError, EOFError, LookupError, TypeError, ValueError, RuntimeError, UnpicklingError) as error:
            raise DsocrError(f"{out / STATE} is no training of this model; give another folder") from error

    def export(self, checkpoint: Path) -> None:
        """Write a checkpoint in bf16; raise ``DsocrError`` where the folder holds weights already."""
        state = {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in self.model.state_dict().items()}
        write_checkpoint(checkpoint, self.arch, state, self.backend)


def train(training: Training, out: Path, *, minutes: float, workers: int) -> Iterator[str]:
    """Take the steps that are left, or as many as the minutes allow; yield lines, and keep the training in ``out``."""
    recipe, deadline = training.recipe, time.monotonic() + 60 * minutes
    pages = Pages(recipe.make_page, recipe.folder / "tokenizer.json", recipe.batch_pages, recipe.presets)
    steps = range(training.step, recipe.steps)
    for rows in DataLoader(pages, batch_size=None, sampler=steps, num_workers=workers):
        found = training.learn(rows)
        is_last = training.step == recipe.steps or time.monotonic() > deadline
        if is_last or training.step % LOG_EVERY == 0:
            losses = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            yield f"step {training.step} of {recipe.steps}: {losses}"
        if is_last or training.step % SAVE_EVERY == 0:
            training.save(out)
        if is_last:
            return


def new_model(arch: Architecture, seed: int) -> DeepseekOCR:
    """Return a model with weights to begin training from, float32 on the CPU."""
    model = DeepseekOCR.empty(arch, sdpa, torch.device("cpu"), torch.float32, round_rope=False)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_initial(name, parameter, random))
    return model.requires_grad_()


def _initial(name: str, parameter: nn.Parameter, random: torch.Generator) -> Tensor:
    if name.endswith("bias") or "rel_pos" in name:
        return torch.zeros_like(parameter)
    if name.endswith("weight") and parameter.dim() == 1:
        return torch.ones_like(parameter)
    normal = torch.randn(parameter.shape, generator=random)
    if name.endswith("sam_model.pos_embed"):
        return EMBEDDING_STD * plane_waves(*parameter.shape[2:])[None]
    if name.endswith(EMBEDDINGS):
        return EMBEDDING_STD * normal
    if name.endswith(("lm_head.weight", "gate.weight")):
        return HEAD_STD * normal
    scale = BRANCH_SCALE if name.endswith(LAST_OF_BRANCH) else 1.0
    return scale * normal / math.sqrt(math.prod(parameter.shape[1:]))


def plane_waves(side: int, width: int) -> Tensor:
    """Return sines and cosines of every row and column of a square, alike for neighbours: ``[side, side, width]``."""
    periods = 4 * side * (1 / side) ** torch.linspace(0, 1, width // 4)
    angles = torch.arange(float(side))[:, None] * (2 * math.pi / periods)
    line = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.cat([line[:, None].expand(-1, side, -1), line[None].expand(side, -1, -1)], dim=-1)
