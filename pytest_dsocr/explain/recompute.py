"""Stages of the engine computed again from one seam to the next, with and without a mistake.

Everything before the broken seam is right and is computed once. Only the block that broke is computed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.contract import inputs as of_inputs
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import encoded_side
from pytest_dsocr.describe.layout import ImageTokens
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import Changes, Mistake, Plant, PromptState, Target, home_of, image_places
from pytest_dsocr.models.spec import FUSION, PIXELS
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam


def inputs_under(engine: Engine[Any], case: Case, one: Mistake | None = None, *, page: Any = None) -> Inputs:
    """Make a case's inputs under a mistake, without the engine's own checks; with ``page``, without pixels."""
    with Changes() as changes:
        changes.set(of_inputs, "check_inputs", lambda *_: None)
        if one is not None:
            one.plant(Target(engine, changes))
        if page is not None:
            changes.set(of_inputs, "views", lambda *_: (torch.zeros(1, 3, 1, 1, dtype=torch.uint8),) * 2)
        return engine.prepare(case.page if page is None else page, prompt=case.prompt, preset=case.preset)


class GivenBlocks(nn.Module):
    """Module that replaces the earlier blocks and returns their output."""

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out

    def forward(self, *_: Any) -> Tensor:
        """Return the output."""
        return self.out


class Stop(nn.Module):
    """Module that replaces the later blocks and ends the computation."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        """Raise the output."""
        raise StopAtError(x)


class StopAtError(Exception):
    """End of a computation at a seam.

    Args:
        out: tensor of the seam.
    """

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out


class Clean:
    """Right tensors of a page, each computed when it is first needed.

    Args:
        engine: an engine without a mistake.
        inputs: inputs of the page.
        made: tensors that replace the engine's, by stage and view; the features for the prompt have no view.
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

    @property
    def image_tokens(self) -> ImageTokens:
        """Layout of the image's tokens in the prompt."""
        crop, page = (encoded_side(one.shape[-1]) for one in (self.inputs.images_crop, self.inputs.images_ori))
        return ImageTokens(self.grid, crop, page, self.engine.family.layout)

    def stage_inputs(self, stage: str, view: str) -> list[Tensor]:
        """Return the inputs of a stage for a view, ``crops`` or ``page``."""
        pixels = self.inputs.images_crop if view == "crops" else self.inputs.images_ori
        takes = self.engine.family.stage[stage].takes
        return [pixels if name == PIXELS else self.features(name, view) for name in takes]

    def features(self, stage: str, view: str) -> Tensor:
        """Return the output of a stage for a view."""
        if (stage, view) not in self._features:
            self._features[stage, view] = self.engine.pipeline.encode(stage, *self.stage_inputs(stage, view))
        return self._features[stage, view]

    @property
    def to_fuse(self) -> tuple[Tensor, ...]:
        """Features of the crops, if there are any, and of the page, which are laid out in the prompt."""
        last = self.engine.family.of_views[-1].name
        views = ("crops", "page") if self.grid != (1, 1) else ("page",)
        return tuple(self.features(last, view) for view in views)

    def fuse(self, of_views: Sequence[Tensor]) -> Tensor:
        """Lay out the views' features as :meth:`Pipeline.vision` does, which drops those that a lossy preset loses."""
        *crops, page = of_views
        fused = self.engine.pipeline.vision_fusion(crops[0] if crops else None, page, self.grid)
        return fused[: self.inputs.image_tokens] if self.engine.family.drops_surplus(self.inputs) else fused

    @cached_property
    def fused(self) -> Tensor:
        """Features that go into the prompt."""
        return self._features[FUSION, ""] if (FUSION, "") in self._features else self.run(FUSION, "")

    @property
    def in_prompt(self) -> Tensor | None:
        """Features that go into the prompt; None if the vendor's gate lets none in."""
        return self.fused if self.inputs.has_vision else None

    def fused_under(self, stage: str, changed: Mapping[tuple[str, str], Tensor]) -> Tensor:
        """Compute the features for the prompt again from ``stage`` on, with its changed output."""
        names = [one.name for one in self.engine.family.stages]
        front = names[: names.index(stage)] if stage in names else names
        made = {key: tensor for key, tensor in self._features.items() if key[0] in front}
        return Clean(self.engine, self.inputs, made | dict(changed)).fused

    @property
    def image(self) -> tuple[int, int]:
        """Position of the image's first token in the prompt, and the position after its last one."""
        return image_places(self.inputs.images_seq_mask)

    def run(self, stage: str, view: str, most: int | None = None) -> Tensor:
        """Compute a stage from its right inputs, for at most ``most`` views."""
        pipeline = self.engine.pipeline
        if view:
            return pipeline.encode(stage, *(tensor[:most] for tensor in self.stage_inputs(stage, view)))
        if stage == FUSION:
            return self.fuse(self.to_fuse)
        return pipeline.prefill_with(self.inputs, self.in_prompt).logits[0]

    def warm(self, stage: str, view: str) -> None:
        """Compute the inputs of :meth:`run`."""
        if view:
            self.stage_inputs(stage, view)
        elif self.inputs.has_vision:
            _ = self.to_fuse if stage == FUSION else self.fused


class Segment:
    """Part of the model between two seams of a page, to be computed again.

    Args:
        clean: right tensors of the page.
        what: the later seam, such as ``STAGE.crops/3`` or ``projector.page``.
        has_blocks: whether the subject shows the seams of the blocks, and they are right up to this one.
    """

    def __init__(self, clean: Clean, what: str, *, has_blocks: bool) -> None:
        self.clean = clean
        self.stage, self.view, depth = TensorName.parse(what)
        self.owner, self.attribute = home_of(clean.engine, self.stage)
        self.all_blocks: Sequence[Any] = list(getattr(self.owner, self.attribute)) if self.owner else []
        count = len(self.all_blocks)
        is_end = has_blocks and depth is None and count > 0
        self.first = depth if depth is not None else count if is_end else 0
        self.last = count if depth is None else depth + 1
        self.stops = depth is not None
        with torch.no_grad():
            clean.warm(self.stage, self.view)
            self.feed = self._captured() if self.first else None

    @property
    def blocks(self) -> Sequence[Any]:
        """Blocks that are computed."""
        return self.all_blocks[self.first : self.last]

    def compute(self, plant: Plant | None, most: int | None = None) -> Tensor:
        """Return the tensor of the later seam with a mistake or none, for at most ``most`` views."""
        with self._planted(plant, self.last, self.blocks, stops=self.stops, most=most):
            try:
                return self.clean.run(self.stage, self.view, most)
            except StopAtError as stopped:
                return stopped.out

    @property
    def has_windows(self) -> bool:
        """Whether its first windows can be computed alone: it is one block with attention inside of windows."""
        return self.stops and bool(getattr(self.blocks[0], "window", 0))

    def first_rows(self, plant: Plant | None) -> Tensor:
        """Return the output for the first windows of the first view."""
        [block] = self.blocks
        rows = self.block_input[:1, : block.window]
        with self._planted(plant, self.last, [block], stops=False), self.clean.engine.pipeline.running(self.stage):
            out: Tensor = block(rows)
        return out

    @cached_property
    def block_input(self) -> Tensor:
        """Input of the block."""
        kept: list[Tensor] = []
        with self.blocks[0].register_forward_pre_hook(lambda _m, args: kept.append(args[0])):
            self.compute(None)
        return kept[0]

    def later(self, plant: Plant, *, alone: bool) -> Iterator[tuple[str, Seam]]:
        """Yield the later seams of the stage, with the mistake in this block alone or in every block from here on."""
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
                prompt = PromptState.of(self.clean.inputs)
                plant(Target(self.clean.engine, changes, self.stage, blocks, self.all_blocks, self.first, prompt))
            yield

    def _captured(self) -> Tensor:
        """Return the output of the block before."""
        kept: list[Tensor] = []
        with self.all_blocks[self.first - 1].register_forward_hook(lambda _m, _a, out: kept.append(out)):
            self.clean.run(self.stage, self.view)
        return kept[0]


def _keep(outs: list[tuple[str, Seam]], name: str, _module: nn.Module, _args: Any, out: Tensor) -> None:
    outs.append((name, Seam.of(out)))
