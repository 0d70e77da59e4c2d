"""Blocks and stages of a subject with their inputs, from which an engine computes them again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.contract import GRID
from pytest_dsocr.contract.presets import crop_count
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import (
    Changes,
    Mistake,
    PromptState,
    Target,
    blocks_of,
    home_of,
    image_places,
    model_of,
)
from pytest_dsocr.explain.recompute import GivenBlocks
from pytest_dsocr.models import OF_VIEWS, STAGES
from pytest_dsocr.models.spec import FUSION, PIXELS, VIEWS
from pytest_dsocr.records.block_seams import BlockPass, watch_passes
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.passes import Places
from pytest_dsocr.subjects.checked import CheckedSubject


@dataclass(frozen=True, eq=False)
class ComputedPart:
    """Output of a block or stage of the subject, and the input that an engine computes it from again."""

    stage: str
    name: str
    gave: Tensor
    given: tuple[Tensor, ...]
    """Input of the block or stage."""
    depth: int | None = None
    """Index of the block; None for a whole stage."""
    image: tuple[int, int] = (0, 0)
    """Position of the image's first token in the prompt, and the position after its last one."""
    grid: tuple[int, int] = (1, 1)
    """Columns and rows of crops, which fusion lays out."""

    def compute(
        self, engine: Engine[Any], change: Mistake | None = None, *, wide: bool = False, blocks: Tensor | None = None
    ) -> Tensor:
        """Return the engine's output, under a mistake or none.

        Args:
            engine: computes.
            change: a mistake that is planted meanwhile.
            wide: whether the input is converted to float32.
            blocks: the known output of the stage's blocks, which are not run again.
        """
        given = [one.float() if wide and one.is_floating_point() else one for one in self.given]
        with Changes() as changes, torch.no_grad():
            target = self._target(engine, changes)
            if blocks is not None:
                changes.set(*home_of(engine, self.stage), nn.ModuleList([GivenBlocks(blocks)]))
            if change is not None:
                change.plant(target)
            if self.stage == FUSION:
                fused = engine.pipeline.vision_fusion(given[0] if given[1:] else None, given[-1], self.grid)
                return fused[: len(self.gave)] if engine.family.tiling.lossy_px else fused  # the vendor drops the rest
            if self.depth is None:
                return engine.pipeline.encode(self.stage, *given)
            with engine.pipeline.running(self.stage):
                block = blocks_of(engine, self.stage)[self.depth]
                out: Tensor = block(*given, *model_of(engine).block_arguments(self.stage, given[0]))
                return out

    def attended(self, engine: Engine[Any]) -> Tensor:
        """Return the output of a decoder layer's attention, added to its input."""
        assert self.depth is not None
        layer, [x_BTC] = blocks_of(engine, self.stage)[self.depth], self.given
        out: Tensor = x_BTC + layer.self_attn(
            layer.input_layernorm(x_BTC), *model_of(engine).block_arguments(self.stage, x_BTC)
        )
        return out

    def _target(self, engine: Engine[Any], changes: Changes) -> Target:
        blocks = blocks_of(engine, self.stage)
        own = blocks if self.depth is None else [blocks[self.depth]]
        prompt = PromptState(self.image, self.given[0].shape[1])
        return Target(engine, changes, self.stage, own, blocks, self.depth or 0, prompt)


def parts_of(asked: CheckedSubject, inputs: Mapping[str, Tensor], places: Places | None = None) -> list[ComputedPart]:
    """Run a subject's vision and prompt, and return the parts that can be computed again.

    These are its stages for each view. The blocks come first, if it has named modules or keeps their outputs.

    Args:
        asked: the subject.
        inputs: its own.
        places: see :class:`~pytest_dsocr.records.passes.Passes`.
    """
    find = asked.subject.module if asked.level >= Level.MODULES else None
    with torch.no_grad(), watch_passes(find, places) if find else nullcontext(list[BlockPass]()) as passes:
        seams = asked.vision(inputs, partial=True)
        if find:
            asked.prefill(inputs, seams.get("vision_fusion"))
    image = image_places(inputs["images_seq_mask"])
    blocks = [ComputedPart(one.stage, one.name, one.gave, (one.given,), one.depth, image) for one in passes]
    return [*blocks, *_kept(asked.block_outputs, image), *_stages(seams, inputs)]


def _kept(blocks: Mapping[str, Tensor], image: tuple[int, int]) -> Iterator[ComputedPart]:
    """Yield the blocks that a subject without modules kept together with the one before, which is their input."""
    for text, gave in blocks.items():
        name = TensorName.parse(text)
        given = blocks.get(str(name._replace(block=name.block - 1))) if name.block else None
        if given is not None and given.shape == gave.shape:
            yield ComputedPart(name.stage, text, gave, (given,), name.block, image)


def _stages(seams: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Iterator[ComputedPart]:
    for name, gave in seams.items():
        if given := inputs_of(tensor := TensorName.parse(name), inputs, seams):
            columns, rows = inputs[GRID][0].tolist()
            yield ComputedPart(tensor.stage, name, gave, given, grid=(columns, rows))


def inputs_of(name: TensorName, inputs: Mapping[str, Tensor], seams: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Return the inputs of a stage for a view, or of fusion; none of another tensor, or if one of them is not there."""
    if name.stage == FUSION:
        return _to_fuse(inputs[GRID].tolist(), seams)
    pixels = {"crops": inputs["images_crop"], "page": inputs["images_ori"]}
    known = next((one for one in STAGES if one.name == name.stage and name.view), None)
    takes = known.takes if known else ()
    sources = [pixels[name.view] if one == PIXELS else seams.get(str(TensorName(one, name.view))) for one in takes]
    given = tuple(one for one in sources if one is not None)
    return given if len(given) == len(takes) else ()


def _to_fuse(grids: Sequence[tuple[int, int]], seams: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Return the last stage's output for the crops, if there are any, and for the page; none for several images."""
    views = VIEWS if grids and crop_count(grids[0]) else VIEWS[-1:]
    given = [seams.get(str(TensorName([*OF_VIEWS][-1], view))) for view in views]
    return tuple(one for one in given if one is not None) if len(grids) == 1 and None not in given else ()
