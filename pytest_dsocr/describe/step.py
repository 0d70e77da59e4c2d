"""Describe a wrong tensor inside of a block by the simplest relation to the subject's own tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pytest_dsocr.base.words import listed
from pytest_dsocr.describe.attention import ACTIVATIONS
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.functions import FORMATS, Function, functions_of, rounded
from pytest_dsocr.describe.layout import pair_of
from pytest_dsocr.describe.measured import found_by, is_time_over, measured
from pytest_dsocr.describe.pair import TINY, RowPair, share
from pytest_dsocr.describe.products import products_of
from pytest_dsocr.describe.tensors import describe_tensor
from pytest_dsocr.describe.wiring import Term, error_of, sum_of

INSIDE, LOCATED = "inside", "located"
"""Kinds of a description that says how a step is wrong, and of one that says only which."""
MOST_LEFT = 1e-2
"""Largest relative error of a difference that is a sum."""
ALL = 0.9999
"""Share of a difference from which on no other relation is looked for: float16 and TF32 differ by less than 1 %."""
NEAR = 0.1
"""Largest relative error of an input that shows which of the engine's modules a module is."""
MOST_VALUES = 100_000
"""Number of values of which a range is shown."""
WINDOW = "window"
"""Item of the first axis inside of a block: only one view is watched there."""


class EngineCall(NamedTuple):
    """A call of a module of the engine that has none inside."""

    path: str
    module: nn.Module
    given: Tensor
    gave: Tensor


class Change(Protocol):
    """Receives a call of the engine, and may return another output for it."""

    def __call__(self, call: EngineCall) -> Tensor | None:
        """Return the output that the engine goes on with; None for its own."""


class StepEngine(Protocol):
    """Part of the engine, such as a block, that computes from the subject's own input."""

    @property
    def channels_last(self) -> bool:
        """Whether maps have their channels last."""

    def run(self, change: Change) -> Tensor:
        """Return the output; ``change`` sees every call of a module without modules inside."""

    def forms(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield the forms that a tensor has in this part: as a whole view, and cut into windows."""

    def others(self, step: InnerStep) -> Iterator[tuple[str, Tensor]]:
        """Yield other tensors than the right one that a step may give, with words; the simplest come first."""

    def added(self, step: InnerStep) -> Tensor | None:
        """Return what a step adds as positions; None if it adds none."""


@dataclass(frozen=True, eq=False)
class OwnCall:
    """A call of the subject's module, in the layout of the engine's that it is paired with."""

    path: str
    given: Tensor
    gave: Tensor
    place: int
    """Position among the subject's calls."""


class Paired(NamedTuple):
    """Calls inside of a block."""

    own: dict[str, OwnCall]
    """The subject's by the engine's names."""
    right: Sequence[EngineCall]
    """The engine's in their order."""
    outputs: dict[str, Tensor]
    """The subject's outputs in the engine's layout, by the engine's names."""


@dataclass(frozen=True, eq=False)
class InnerStep:
    """A tensor of the subject inside of a block, and the engine's from the same arguments."""

    path: str
    """The subject's name of the module."""
    actual: Tensor
    expected: Tensor
    call: EngineCall | None = None
    """The engine's call; None for the output of the whole."""
    given: Tensor | None = None
    """Input of the module, if the step is its output."""
    terms: Sequence[Term] = ()
    """Tensors that it may be a sum of."""
    later: Sequence[Term] = ()
    """Tensors that the subject computes after it."""
    block: Paired | None = None
    """All calls."""
    unseen: tuple[str, ...] = ()
    """The engine's modules just before it that no module of the subject is known for."""

    @property
    def is_input(self) -> bool:
        """Whether it is what a module is given, and not what it returns."""
        return self.given is None

    @property
    def wrong(self) -> str:
        """Words for a tensor that is wrong, with what is known of its arguments."""
        known = f"and not seen before it: {listed(self.unseen)}" if self.unseen else "though computed from right values"
        return f"wrong, {known}"

    @property
    def error(self) -> float:
        """Relative error."""
        return error_of(self.actual.float(), self.expected.float())


def described(step: InnerStep, engine: StepEngine, limit: float) -> Description | None:
    """Describe a wrong step; None if it is not certain that the subject's module is the engine's."""
    pair = pair_of(step.actual, step.expected, channels_last=engine.channels_last, item=WINDOW)
    for relation in (_of_sum, _of_function, _of_input, _of_engine):
        if (best := _best(measured(relation, step, engine, pair, limit))) is not None:
            return best
    if step.is_input and not step.terms and (halves := next(measured(_of_halves, pair), None)) is not None:
        return halves
    right = None if step.call is None else step.call.given.float().cpu()
    is_sure = right is None or step.given is None or error_of(step.given.float(), right) <= NEAR
    found = describe_tensor(pair) if is_sure else None
    if found is None:
        return None
    kind, share_of = (INSIDE, found.share) if found.explains else (LOCATED, 0.0)
    return Description(kind, f"{step.wrong}: {found.text}", share_of, found.cases)


def _of_halves(pair: RowPair) -> Description | None:
    """Describe both halves of the channels, if each has a relation of its own."""
    if pair.actual.shape[-1] % 2:
        return None
    middle, found = pair.actual.shape[-1] // 2, list[Description]()
    for name, place in (("first", slice(0, middle)), ("second", slice(middle, None))):
        half = replace(pair, actual=pair.actual[..., place], expected=pair.expected[..., place], given=None)
        if half.error > pair.noise:
            one = describe_tensor(half)
            if one is None or not one.explains:
                return None
            found.append(replace(one, text=f"in the {name} half of the channels, {one.text}"))
    text = "; ".join(one.text for one in found)
    return Description(INSIDE, f"wrong: {text}", min(one.share for one in found), sum(one.cases for one in found))


def _on(module: nn.Module, tensor: Tensor) -> Tensor:
    like = next(module.parameters(), None)
    return tensor if like is None else tensor.to(like.device, like.dtype)


def applied(function: Function, module: nn.Module, tensor: Tensor) -> Tensor | None:
    """Return a function of a tensor, computed where a module's weights are; None if it takes no such shape."""
    try:
        return function(_on(module, tensor)).float().cpu()
    except (RuntimeError, IndexError, ValueError):  # another shape
        return None


def _best(found: Iterable[Description]) -> Description | None:
    """Return the first description that explains all but rounding, or else the best one that explains enough."""
    best: Description | None = None
    for one in found:
        if one.explains and (best is None or one.share > best.share):
            best = one
        if one.share >= ALL:
            break
    return best


def where_of(step: InnerStep) -> str:
    """Return the name of a step's tensor."""
    if step.call is None:
        return step.path
    return f"the {'input' if step.is_input else 'output'} of `{step.path}`"


def _of_sum(step: InnerStep, engine: StepEngine, pair: RowPair, limit: float) -> Iterator[Description]:
    """Yield the sum of the subject's own tensors that the step is."""
    if not step.is_input:
        return
    if (actual := sum_of(step.actual, step.terms, limit)) is not None:
        right = sum_of(step.expected, [*step.terms, *step.later], limit)
        instead = f" instead of {right.words}" if right else ""
        text = f"{actual.words}{instead}"
        yield Description(INSIDE, text, 1 - min(1.0, actual.error / pair.error), int(pair.differing.sum()))
        return
    apart = step.actual.float() - step.expected.float()
    if (more := sum_of(apart, step.terms, MOST_LEFT, is_scaled=True)) is not None:
        yield Description(INSIDE, f"the right one plus {more.words}", 1 - more.error, int(pair.differing.sum()))


def _of_function(step: InnerStep, engine: StepEngine, pair: RowPair, limit: float) -> Iterator[Description]:
    """Yield another function of the module's input that gives its output."""
    if step.is_input or step.call is None or step.given is None:
        return
    others: list[tuple[str, Function]] = [
        (f"that of `{one.path}` for this input", one.module.forward)
        for one in (step.block.right if step.block else ())
        if one.path != step.call.path and type(one.module) is type(step.call.module)
    ]
    module, given = step.call.module, _on(step.call.module, step.given)
    measured_on = found_by(products_of, module, given, step.actual)
    for words, function in chain(functions_of(module), others, measured_on):
        made = applied(function, step.call.module, step.given)
        if made is not None and made.shape == step.actual.shape:
            yield Description(INSIDE, words, _share(pair, made, step, engine), int(pair.differing.sum()))


def _of_input(step: InnerStep, engine: StepEngine, pair: RowPair, limit: float) -> Iterator[Description]:
    """Yield another activation, or a rounding, that gives a module's input."""
    if not step.is_input:
        return
    known = {} if step.block is None else step.block.own
    same = [own for own in known.values() if own.gave.numel() == step.actual.numel()]
    for own in same:
        x = own.gave.float().reshape(step.actual.shape)
        for name, activation in ACTIVATIONS.items():
            for other in (None, *(one for one in same if one is not own)):
                made = activation(x) * (1 if other is None else other.gave.float().reshape(x.shape))
                times = "" if other is None else f" times the output of `{other.path}`"
                text = f"{name} of the output of `{own.path}`{times}"
                yield Description(INSIDE, text, _share(pair, made, step, engine), int(pair.differing.sum()))
                if other is not None:
                    text = f"{name} of the output of `{own.path}` times that of `{other.path}`"
                    made = activation(x * other.gave.float().reshape(x.shape))
                    yield Description(INSIDE, text, _share(pair, made, step, engine), int(pair.differing.sum()))
        made = step.expected + _table(x, step.actual - step.expected)
        low, high = (f"{float(one):.3g}" for one in x.flatten()[:MOST_VALUES].quantile(torch.tensor([0.05, 0.95])))
        text = f"another function of each value of the output of `{own.path}`, from {low} to {high}"
        yield Description(INSIDE, text, _share(pair, made, step, engine), int(pair.differing.sum()))
    for name, dtype in FORMATS.items():
        text, made = f"rounded to {name}", rounded(step.expected, dtype)
        yield Description(INSIDE, text, _share(pair, made, step, engine), int(pair.differing.sum()))


def _table(x: Tensor, y: Tensor) -> Tensor:
    """Return a function of each value, read for every second value between the values at the other places."""
    flat, known, out = x.flatten(), y.flatten(), torch.empty(y.numel())
    for own, other in ((0, 1), (1, 0)):
        at, order = flat[other::2].sort()
        there, wanted = known[other::2][order], flat[own::2].contiguous()
        above = torch.searchsorted(at, wanted).clamp(1, len(at) - 1)
        part = ((wanted - at[above - 1]) / (at[above] - at[above - 1]).clamp_min(TINY)).clamp(0, 1)
        out[own::2] = torch.lerp(there[above - 1], there[above], part)
    return out.view_as(y)


def _of_engine(step: InnerStep, engine: StepEngine, pair: RowPair, limit: float) -> Iterator[Description]:
    for words, made in engine.others(step) if not is_time_over() else ():
        text = f"{step.wrong}: {words}"
        yield Description(INSIDE, text, _share(pair, made.float().cpu(), step, engine), int(pair.differing.sum()))
    if (positions := engine.added(step)) is not None:
        own = step.actual - (step.expected - positions)
        moved = describe_tensor(pair_of(own, positions, channels_last=engine.channels_last))
        if moved is not None:
            yield replace(moved, text=f"wrong: of the positions that are added, {moved.text}")
        bare = pair_of(step.actual - positions, step.expected - positions, channels_last=engine.channels_last)
        if (found := describe_tensor(bare)) is not None:
            yield replace(found, text=f"wrong; without the positions that are added, {found.text}")


def _share(pair: RowPair, made: Tensor, step: InnerStep, engine: StepEngine) -> float:
    if made.shape != step.actual.shape or not torch.isfinite(made).all():
        return 0.0
    return share(pair, pair_of(made, step.expected, channels_last=engine.channels_last).actual)
