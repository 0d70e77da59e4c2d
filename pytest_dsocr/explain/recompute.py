"""A stage of the engine computed again from one seam to the next, with and without a mistake.

What is in front of the seam is right, so it is computed once; of the blocks only the one that broke is computed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.contract import inputs as of_inputs
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import Changes, Mistake, Plant, Target, home_of, image_places
from pytest_dsocr.models.spec import FUSION, PIXELS
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam


def inputs_under(engine: Engine[Any], case: Case, one: Mistake | None = None, *, page: Any = None) -> Inputs:
    """Make a case's inputs, under a mistake and without the engine's own checks; of ``page`` without its pixels."""
    with Changes() as changes:
        changes.set(of_inputs, "check_inputs", lambda *_: None)
        if one is not None:
            one.plant(Target(engine, changes))
        if page is not None:
            changes.set(of_inputs, "views", lambda *_: (torch.zeros(1, 3, 1, 1, dtype=torch.uint8),) * 2)
        return engine.prepare(case.page if page is None else page, prompt=case.prompt, preset=case.preset)


class GivenBlocks(nn.Module):
    """Stands for the blocks in front, and returns what they returned."""

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out

    def forward(self, *_: Any) -> Tensor:
        """Return it."""
        return self.out


class Stop(nn.Module):
    """Stands for the blocks behind, and ends the computation."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        """End it."""
        raise StopAtError(x)


class StopAtError(Exception):
    """The computation has come to the seam.

    Args:
        out: the seam's tensor.
    """

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out


class Clean:
    """The engine's own tensors of a page, each computed when it is first needed.

    Args:
        engine: without a mistake.
        inputs: of the page.
        made: tensors that are taken in the place of the engine's, by stage and view.
    """

    def __init__(
        self, engine: Engine[Any], inputs: Inputs, made: Mapping[tuple[str, str], Tensor] | None = None
    ) -> None:
        self.engine, self.inputs, self._features = engine, inputs, dict(made or {})

    @property
    def grid(self) -> tuple[int, int]:
        """Columns and rows of crops."""
        columns, rows = self.inputs.images_spatial_crop[0].tolist()
        return columns, rows

    def stage_inputs(self, stage: str, view: str) -> list[Tensor]:
        """Return what a stage takes of a view, ``crops`` or ``page``."""
        pixels = self.inputs.images_crop if view == "crops" else self.inputs.images_ori
        takes = self.engine.family.stage[stage].takes
        return [pixels if name == PIXELS else self.features(name, view) for name in takes]

    def features(self, stage: str, view: str) -> Tensor:
        """Return the output of a stage for a view."""
        if (stage, view) not in self._features:
            self._features[stage, view] = self.engine.pipeline.encode(stage, *self.stage_inputs(stage, view))
        return self._features[stage, view]

    @property
    def _to_fuse(self) -> tuple[Tensor | None, Tensor]:
        last = self.engine.family.of_views[-1].name
        return self.features(last, "crops") if self.grid != (1, 1) else None, self.features(last, "page")

    @cached_property
    def fused(self) -> Tensor:
        """What goes into the prompt."""
        return self.run(FUSION, "")

    @property
    def in_prompt(self) -> Tensor | None:
        """What goes into the prompt; None of a page on which the vendor's gate is shut."""
        return self.fused if self.inputs.has_vision else None

    def fused_under(self, stage: str, changed: Mapping[tuple[str, str], Tensor]) -> Tensor:
        """Compute what goes into the prompt anew from ``stage`` on, as it, or what it gives, is changed by now."""
        names = [one.name for one in self.engine.family.stages]
        front = names[: names.index(stage)] if stage in names else names
        made = {key: tensor for key, tensor in self._features.items() if key[0] in front}
        return Clean(self.engine, self.inputs, made | dict(changed)).fused

    @property
    def image(self) -> tuple[int, int]:
        """The first position of the image's tokens in the prompt, and the first behind them."""
        return image_places(self.inputs.images_seq_mask)

    def run(self, stage: str, view: str, most: int | None = None) -> Tensor:
        """Compute a stage from the right tensors in front of it, of no more than ``most`` views."""
        pipeline = self.engine.pipeline
        if view:
            return pipeline.encode(stage, *(tensor[:most] for tensor in self.stage_inputs(stage, view)))
        if stage == FUSION:
            return pipeline.vision_fusion(*self._to_fuse, self.grid)
        return pipeline.prefill_with(self.inputs, self.in_prompt).logits[0]

    def warm(self, stage: str, view: str) -> None:
        """Compute what :meth:`run` starts from."""
        if view:
            self.stage_inputs(stage, view)
        elif self.inputs.has_vision:
            _ = self._to_fuse if stage == FUSION else self.fused


class Segment:
    """What lies between two seams of a page, to be computed again.

    Args:
        clean: the page's right tensors.
        what: the seam, such as ``STAGE.crops/3`` or ``projector.page``.
        has_blocks: whether the seams of blocks are known to be right up to this one.
    """

    def __init__(self, clean: Clean, what: str, *, has_blocks: bool) -> None:
        self.clean = clean
        self.stage, self.view, depth = TensorName.parse(what)
        self.owner, self.attribute = home_of(clean.engine, self.stage)
        self.all_blocks: Sequence[Any] = list(getattr(self.owner, self.attribute)) if self.owner else []
        count = len(self.all_blocks)
        is_behind = has_blocks and depth is None and count > 0
        self.first = depth if depth is not None else count if is_behind else 0
        self.last = count if depth is None else depth + 1
        self.stops = depth is not None
        with torch.no_grad():
            clean.warm(self.stage, self.view)
            self.feed = self._captured() if self.first else None

    @property
    def blocks(self) -> Sequence[Any]:
        """Those that are computed."""
        return self.all_blocks[self.first : self.last]

    def compute(self, plant: Plant | None, most: int | None = None) -> Tensor:
        """Return the seam's tensor, under a mistake or none, of no more than ``most`` views."""
        with self._planted(plant, self.last, self.blocks, stops=self.stops, most=most):
            try:
                return self.clean.run(self.stage, self.view, most)
            except StopAtError as stopped:
                return stopped.out

    @property
    def has_windows(self) -> bool:
        """Whether it is a block whose attention keeps to windows, so that the first windows can be computed alone."""
        return self.stops and bool(getattr(self.blocks[0], "window", 0))

    def first_rows(self, plant: Plant | None) -> Tensor:
        """Return the first windows of the first view, of a block whose attention keeps to windows."""
        [block] = self.blocks
        rows = self.block_input[:1, : block.window]
        with self._planted(plant, self.last, [block], stops=False), self.clean.engine.pipeline.running(self.stage):
            out: Tensor = block(rows)
        return out

    @cached_property
    def block_input(self) -> Tensor:
        """What the block gets."""
        kept: list[Tensor] = []
        with self.blocks[0].register_forward_pre_hook(lambda _m, args: kept.append(args[0])):
            self.compute(None)
        return kept[0]

    def behind(self, plant: Plant, *, alone: bool) -> Iterator[tuple[str, Seam]]:
        """Yield the stage's seams behind this one, with the mistake in every block from here on, or in one alone."""
        whole = TensorName(self.stage, self.view)
        outs: list[tuple[str, Seam]] = []
        blocks = self.blocks if alone else self.all_blocks[self.first :]
        with self._planted(plant, len(self.all_blocks), blocks, stops=False), ExitStack() as hooks:
            for depth, block in enumerate(self.all_blocks[self.last :], self.last):
                hooks.enter_context(block.register_forward_hook(partial(_keep, outs, str(whole._replace(block=depth)))))
            out = Seam.of(self.clean.run(self.stage, self.view))
        yield from (*outs, (str(whole), out))

    @contextmanager
    def _planted(
        self, plant: Plant | None, last: int, blocks: Sequence[nn.Module], *, stops: bool, most: int | None = None
    ) -> Iterator[None]:
        with Changes() as changes, torch.no_grad():
            if self.owner is not None and (self.feed is not None or stops):
                front = [] if self.feed is None else [GivenBlocks(self.feed[:most])]
                left = [*front, *self.all_blocks[self.first : last], *([Stop()] if stops else [])]
                changes.set(self.owner, self.attribute, nn.ModuleList(left))
            if plant is not None:
                notes = {"all_blocks": self.all_blocks, "first": self.first, "stage": self.stage, "view": self.view}
                plant(Target(self.clean.engine, changes, blocks, self.clean.image, notes))
            yield

    def _captured(self) -> Tensor:
        """Return the output of the block in front."""
        kept: list[Tensor] = []
        with self.all_blocks[self.first - 1].register_forward_hook(lambda _m, _a, out: kept.append(out)):
            self.clean.run(self.stage, self.view)
        return kept[0]


def _keep(outs: list[tuple[str, Seam]], name: str, _module: nn.Module, _args: Any, out: Tensor) -> None:
    outs.append((name, Seam.of(out)))
