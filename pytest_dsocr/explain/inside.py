"""The engine's side of a block that is compared step by step with the subject's modules."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.inside import LIMIT, OF_NARROW, describe_inside
from pytest_dsocr.describe.step import INSIDE, Change, EngineCall, InnerStep
from pytest_dsocr.describe.windows import has_windows
from pytest_dsocr.describe.wiring import error_of
from pytest_dsocr.explain.inside_ways import ways_to_attend, ways_to_join, ways_to_pad, ways_to_place
from pytest_dsocr.explain.mistake import Changes, blocks_of, home_of, model_of, without_positions
from pytest_dsocr.explain.parts import ComputedPart
from pytest_dsocr.explain.recompute import Clean, GivenBlocks, Stop, StopAtError
from pytest_dsocr.layers.sam import SamBlock, join_windows, split_windows
from pytest_dsocr.records.inside import InnerCall, Inside
from pytest_dsocr.records.names import TensorName

PROJECTIONS = ("proj", "out_proj", "o_proj")
"""Names of the layers that take attention's result."""
BLOCK = ("the block's input", "the block's output")
FRONT = ("the stage's input", "the input of the first block")
WINDOWS = (0, 7, 8, 10, 12, 14, 16, 20, 28, 32)
"""Sizes of windows that are tried; 0 for the whole view."""
BACK = ("the last block's output", "the stage's output")


@dataclass(frozen=True, eq=False)
class InnerEngine:
    """A block of the engine, or the front of a stage up to its first block, with the subject's input."""

    clean: Clean
    name: TensorName
    given: Tensor
    """First view of the input."""
    is_front: bool = False
    stage: tuple[Tensor, ...] = ()
    """Inputs of the stage, if the part is what is after its blocks, or a stage without blocks."""

    @property
    def channels_last(self) -> bool:
        """Whether maps have their channels last."""
        return self.name.block is not None

    @property
    def root(self) -> nn.Module:
        """The block, or the stage."""
        engine = self.clean.engine
        if self.is_front or self.name.block is None:
            return model_of(engine).get_submodule(engine.family.stage[self.name.stage].module)
        block: nn.Module = blocks_of(engine, self.name.stage)[self.name.block or 0]
        return block

    def run(self, change: Change) -> Tensor:
        """Return the output; ``change`` sees every call of a module without modules inside."""
        with ExitStack() as hooks, torch.no_grad():
            for path, module in self.root.named_modules():
                if path and not [*module.children()]:
                    hooks.enter_context(module.register_forward_hook(partial(_seen, change, path)))
            return self._computed()

    def _computed(self) -> Tensor:
        engine = self.clean.engine
        given = self.given.to(engine.model.device, engine.model.dtype)
        if self.name.block is None:
            inputs = tuple(one[:1].to(engine.model.device) for one in self.stage)
            blocks = given if engine.family.stage[self.name.stage].blocks else None
            return ComputedPart(self.name.stage, str(self.name), given, inputs).compute(engine, blocks=blocks)
        if not self.is_front:
            part = ComputedPart(self.name.stage, str(self.name), given, (given,), self.name.block, self.clean.image)
            return part.compute(engine)
        with Changes() as changes:
            owner, attribute = home_of(engine, self.name.stage)
            changes.set(owner, attribute, nn.ModuleList([Stop()]))
            try:
                return engine.pipeline.encode(self.name.stage, given)
            except StopAtError as stopped:
                return stopped.out

    def forms(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield the forms that a tensor has in this part: as a whole view, and cut into windows."""
        yield tensor
        if has_windows(block := self.root):
            _, height, width, _ = self.given.shape
            if tensor.shape[:3] == self.given.shape[:3]:
                yield split_windows(tensor, block.window)
            elif tensor.ndim == 4 and tensor.shape[1:3] == (block.window, block.window):
                yield join_windows(tensor, height, width)

    def others(self, step: InnerStep) -> Iterator[tuple[str, Tensor]]:
        """Yield other tensors than the right one that a step may give, with words; the simplest come first."""
        if self.is_front:
            yield from ways_to_place(self, step)
        elif step.call and step.is_input and step.call.path.rpartition(".")[2] in PROJECTIONS:
            yield from ways_to_attend(self, step, step.call)
        elif step.call and step.is_input and has_windows(block := self.root):
            yield from ways_to_pad(self, step, block)
            yield from ways_to_join(self, step, block)

    def added(self, step: InnerStep) -> Tensor | None:
        """Return the positions that a step adds; None if it adds none."""
        if not (self.is_front and step.is_input):
            return None
        positions = self.again(step)
        with without_positions(self.clean.engine, self.name.stage):
            positions = positions - self.again(step)
        return positions if positions.any() else None

    def again(self, step: InnerStep) -> Tensor:
        """Compute a step's expected tensor again, from the subject's own tensors."""
        outputs = step.block.outputs if step.block else {}

        def change(call: EngineCall) -> Tensor | None:
            if step.call and call.path == step.call.path:
                raise StopAtError(call.given)
            return outputs.get(call.path)

        try:
            return self.run(change).float().cpu()
        except StopAtError as stopped:
            return stopped.out.float().cpu()


def _seen(change: Change, path: str, module: nn.Module, args: Any, out: Any) -> Any:
    if isinstance(out, Tensor) and args and isinstance(args[0], Tensor):
        return change(EngineCall(path, module, args[0], out))
    return None


def of_inside(
    clean: Clean, name: TensorName, inside: Inside, stage: tuple[Tensor, ...] = (), *, is_front: bool = False
) -> Description | None:
    """Describe the wrong steps of a part of the model; None if none is known."""
    tensors, calls = inside
    if not calls:
        return None
    inside = Inside(tuple(tensors), tuple(InnerCall(*one) for one in calls))
    engine = InnerEngine(clean, name, inside.given, is_front, stage)
    given, gave = FRONT if is_front else BACK if name.block is None else BLOCK
    has_blocks = bool(clean.engine.family.stage[name.stage].blocks)
    return describe_inside(inside, engine, given if has_blocks else "", gave)


def of_other_block(clean: Clean, name: TensorName, gave: Tensor, given: Tensor) -> Description | None:
    """Describe an output that another block of the stage gives for this input, or this block applied twice."""
    own, blocks = gave[:1].float(), len(blocks_of(clean.engine, name.stage))
    limit = LIMIT if gave.dtype is torch.float32 else OF_NARROW

    def given_by(depth: int, x: Tensor) -> Tensor:
        return InnerEngine(clean, name._replace(block=depth), x).run(lambda call: None)

    def is_own(made: Tensor) -> bool:
        return error_of(made.float().cpu(), own) <= limit

    for depth in range(blocks):
        if depth != name.block and is_own(given_by(depth, given[:1])):
            return Description(INSIDE, f"the output is that of block {depth} for this input", 1.0, own[0].numel())
    if is_own(given_by(name.block or 0, given_by(name.block or 0, given[:1]))):
        return Description(INSIDE, "the block is applied twice", 1.0, own[0].numel())
    block = blocks_of(clean.engine, name.stage)[name.block or 0]
    before = getattr(block, "window", 0)
    for window in WINDOWS if isinstance(block, SamBlock) else ():
        with Changes() as changes:
            changes.set(block, "window", window)
            if is_own(given_by(name.block or 0, given[:1])):
                seen = [
                    f"windows of {one} positions on a side" if one else "the whole view" for one in (window, before)
                ]
                return Description(INSIDE, f"attention sees {seen[0]} instead of {seen[1]}", 1.0, own[0].numel())
    return None


def of_early_end(
    clean: Clean, name: TensorName, gave: Tensor, compute: Callable[[], Tensor | None]
) -> Description | None:
    """Describe a stage's output that is made of an earlier block than the last, or is a block's output as it is.

    Args:
        clean: its engine has the stage.
        name: the stage's output.
        gave: the subject's output.
        compute: returns the engine's output for the subject's input.
    """
    owner, attribute = home_of(clean.engine, name.stage)
    outs, limit = list[Tensor](), LIMIT if gave.dtype is torch.float32 else OF_NARROW
    with ExitStack() as hooks:
        for block in blocks_of(clean.engine, name.stage):
            hooks.enter_context(block.register_forward_hook(lambda _, __, out: outs.append(out)))
        compute()
    for depth in reversed(range(len(outs))):
        with Changes() as changes:
            changes.set(owner, attribute, nn.ModuleList([GivenBlocks(outs[depth])]))
            made = compute()
        left = len(outs) - 1 - depth
        rest = f"the last {'block is' if left == 1 else f'{left} blocks are'} left out" if left else ""
        for one, more in ((made, ""), (outs[depth], "what follows the blocks is left out")):
            words = " and ".join(filter(None, (rest, more)))
            is_own = one is not None and one.shape == gave.shape and error_of(one.float().cpu(), gave.float()) <= limit
            if words and is_own:
                text = f"the output is that of block {depth} of 0 to {len(outs) - 1}: {words}"
                return Description(INSIDE, text, 1.0, gave.numel())
    return None
