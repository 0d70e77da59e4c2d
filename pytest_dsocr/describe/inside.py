"""Describe which step inside a block differs, from the inputs and outputs of the subject's own modules.

A module of the subject is paired with one of the engine's if it computes the same function, or by exclusion. Then the
engine computes each step from the subject's own tensors, so that one wrong step does not make the later ones wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.functions import FORMATS, Function
from pytest_dsocr.describe.named_steps import names_of, right_beside
from pytest_dsocr.describe.step import (
    INSIDE,
    LOCATED,
    NEAR,
    EngineCall,
    InnerStep,
    OwnCall,
    Paired,
    StepEngine,
    applied,
    described,
)
from pytest_dsocr.describe.wiring import Term, error_of
from pytest_dsocr.records.inside import Inside

LIMIT, OF_NARROW = 1e-5, 2e-2
"""Largest relative errors of an equal tensor, in float32 and in fewer bits."""
LEAST = 2e-6
"""Relative error of rounding in float32."""
SMALLER = 10
"""Factor between the error of a block and that of a tensor inside that counts as none."""
MOST_GROUPS = 6
"""Number of different relations above which the steps are not the cause's own."""
AS_MUCH = 1e-3
"""Relative error of equal differences."""
MOST_CALLS = 400
"""Number of the engine's calls above which they are not compared."""
LAYOUTS: tuple[Function, ...] = (
    lambda x: x,
    lambda x: x.transpose(0, 1) if x.ndim > 2 else x,
    lambda x: x.movedim(1, -1) if x.ndim > 2 else x,
)
"""Orders of the axes that a port may use."""


def describe_inside(inside: Inside, engine: StepEngine, given: str, whole: str) -> Description | None:
    """Return the steps inside that are wrong, each with the simplest relation; None if they are not known.

    Args:
        inside: the subject's tensors of one call.
        engine: computes the same from the same input.
        given: name of the input, such as ``the block's input``; empty if it is not the subject's alone.
        whole: name of the output, such as ``the block's output``.
    """
    right, own = list[EngineCall](), inside.tensors[1]

    def seen(call: EngineCall) -> None:
        right.append(call)

    try:
        made = engine.run(seen)
    except (RuntimeError, IndexError, ValueError, DsocrError):  # the engine takes no input of this shape
        return None
    if len(right) > MOST_CALLS or made.shape != own.shape:
        return None
    most = LIMIT if own.dtype is torch.float32 else OF_NARROW
    limit = max(LEAST, min(most, error_of(own.float(), made.float().cpu()) / SMALLER))
    pairs = _paired(inside, right, limit)
    steps = [*_steps(inside, engine, Paired(pairs, right, {}), given, whole)]
    wrong = [one for one in steps if one.error > limit]
    if pairs and (narrow := _narrow(inside, steps, made.dtype)) is not None:
        return narrow
    if wrong and any(_follows(wrong[-1], one) for one in wrong[:-1]):
        wrong.pop()
    if not pairs or not wrong:
        return None
    found = [described(one, engine, limit) for one in wrong]
    known = [one for one in found if one is not None]
    return _joined(wrong, known, steps) if len(known) == len(wrong) else None


def _follows(last: InnerStep, step: InnerStep) -> bool:
    """Return whether the output differs as much as a sum inside does, to which the rest is added."""
    apart = [one.actual.float() - one.expected.float() for one in (last, step)]
    is_sum = last.call is None and step.is_input and apart[0].shape == apart[1].shape
    return is_sum and error_of(*apart) <= AS_MUCH


def _joined(wrong: Sequence[InnerStep], known: Sequence[Description], steps: Sequence[InnerStep]) -> Description | None:
    """Join descriptions of some of the steps; steps that differ in the same way are named together."""
    of = dict[str, list[InnerStep]]()
    for step, one in zip(wrong, known, strict=True):
        of.setdefault(one.text, []).append(step)
    if len(of) > MOST_GROUPS:
        of = _by_name(wrong)
    if len(of) > MOST_GROUPS:
        return None
    each = list[str]()
    for words, alike in of.items():
        names, is_one = names_of(alike, steps)
        each.append(f"{names} {'is' if is_one else 'are'} {words}")
    count = f"of {len(steps)} steps inside, {len(steps) - len(wrong)} are right"
    text = f"{count}; {'; '.join(each)}{right_beside(wrong, steps)}"
    kind = LOCATED if len({*of} - {one.text for one in known}) or LOCATED in {one.kind for one in known} else INSIDE
    return Description(kind, text, min(one.share for one in known), sum(one.cases for one in known))


def _by_name(wrong: Sequence[InnerStep]) -> dict[str, list[InnerStep]]:
    """Return steps by their errors in words, those of modules with one name together."""
    alike = dict[tuple[bool, str], list[InnerStep]]()
    for step in wrong:
        alike.setdefault((step.is_input, _name(step.path)), []).append(step)
    of = dict[str, list[InnerStep]]()
    for steps in alike.values():
        errors = sorted(one.error for one in steps)
        words = f"{steps[0].wrong}: relative errors of {errors[0]:.2g} to {errors[-1]:.2g}"
        of.setdefault(words, []).extend(steps)
    return of


def _narrow(inside: Inside, steps: Sequence[InnerStep], wide: torch.dtype) -> Description | None:
    """Describe tensors of fewer bits than the engine's, if each step is right within their rounding."""
    dtypes = [inside.tensors[one.gave].dtype for one in inside.calls]
    for name, dtype in FORMATS.items():
        if wide is torch.float32 and dtype in dtypes and all(one.error <= OF_NARROW for one in steps):
            count = dtypes.count(dtype)
            text = f"{count} of {len(dtypes)} modules inside return {name}, and each step is right but for its rounding"
            return Description(INSIDE, text, 1.0, count)
    return None


def _paired(inside: Inside, right: Sequence[EngineCall], limit: float) -> dict[str, OwnCall]:
    """Return the subject's call for each of the engine's: first those that compute the same, then by exclusion."""
    left, named = _own_calls(inside), {one.path for one in right}
    found = dict[str, OwnCall]()
    for is_same in (True, False):
        for call in right:
            if call.path in found:
                continue
            fit = [one for one in left if _fits(one, call)]
            fit.sort(key=lambda one: _name(one.path) != _name(call.path))
            if is_same:
                one = next((one for one in fit if _computes(call.module, one, limit)), None)
            else:
                one = _nearest([one for one in fit if one.path == call.path or one.path not in named], call)
            if one is not None:
                found[call.path] = one
                left.remove(one)
    for call in right:
        if call.path not in found and (one := _joined_parts(left, call, limit)) is not None:
            found[call.path] = one
    return found


def _own_calls(inside: Inside) -> list[OwnCall]:
    """Return the subject's calls of modules that have none inside."""
    every = [one.path for one in inside.calls]
    return [
        OwnCall(_numbered(every, place), inside.tensors[one.given], inside.tensors[one.gave], place)
        for place, one in enumerate(inside.calls)
        if not any(other.path.startswith(f"{one.path}.") for other in inside.calls)
    ]


def _joined_parts(left: Sequence[OwnCall], call: EngineCall, limit: float) -> OwnCall | None:
    """Return three calls for one input as one: queries, keys and values that the engine computes together."""
    parts = [one for one in left if one.given.numel() == call.given.numel()]
    parts = [one for one in parts if 3 * one.gave.numel() == call.gave.numel() and one.given is parts[0].given]
    if len(parts) != 3:
        return None
    last = max(one.place for one in parts)
    every = [
        OwnCall(" + ".join(one.path for one in order), order[0].given, torch.cat([one.gave for one in order], -1), last)
        for order in permutations(parts)
    ]
    return next((one for one in every if _computes(call.module, one, limit)), every[0])


def _numbered(paths: Sequence[str], place: int) -> str:
    """Return a call's path, with its number if the module is called more than once."""
    path, count = paths[place], paths[:place].count(paths[place])
    return path if paths.count(path) == 1 else f"{path}, call {count + 1}"


def _name(path: str) -> str:
    return path.partition(",")[0].rpartition(".")[2]


def _fits(own: OwnCall, call: EngineCall) -> bool:
    return own.given.numel() == call.given.numel() and own.gave.numel() == call.gave.numel()


def _computes(module: nn.Module, own: OwnCall, limit: float) -> bool:
    """Return whether a module gives the subject's output for the subject's input."""
    made = applied(module, module, own.given)
    return made is not None and error_of(made, own.gave.float()) <= limit


def _nearest(fit: Sequence[OwnCall], call: EngineCall) -> OwnCall | None:
    """Return the call with the same name, or the one with the nearest input, and of several the nearest output."""
    if fit and _name(fit[0].path) == _name(call.path):
        return fit[0]

    def apart(own: OwnCall) -> tuple[float, float]:
        layout = _layout(own, call)
        pairs = ((own.given, call.given), (own.gave, call.gave))
        given, gave = (error_of(_laid(one, layout, right), right.float().cpu()) for one, right in pairs)
        return round(given, 2), gave

    return min(fit, key=apart, default=None)


def _layout(own: OwnCall, call: EngineCall) -> Function:
    """Return the change of axes that brings the subject's input nearest to the engine's; none if all are far."""
    right = call.given.float().cpu()
    errors = [error_of(_laid(own.given, one, right), right) for one in LAYOUTS]
    best = min(range(len(LAYOUTS)), key=errors.__getitem__)
    return LAYOUTS[best if errors[best] < NEAR else 0]


def _laid(tensor: Tensor, layout: Function, like: Tensor) -> Tensor:
    return layout(tensor).float().reshape(like.shape)


def _steps(inside: Inside, engine: StepEngine, block: Paired, given_name: str, whole: str) -> Iterator[InnerStep]:
    """Yield every step, computed from the subject's own arguments."""
    steps, pairs = list[InnerStep](), block.own
    terms = [Term(given_name, inside.tensors[0])] if given_name else []
    in_order = sorted(pairs.values(), key=lambda one: one.place)
    terms += [Term(f"the output of `{own.path}`", own.gave) for own in in_order]
    known = {0, *(one.gave for one in inside.calls)}
    terms += [
        Term(f"the input of `{own.path}`", own.given) for own in in_order if inside.calls[own.place].given not in known
    ]
    forms = [(one.words, [*engine.forms(one.tensor)]) for one in terms]

    def fitting(place: int, like: Tensor) -> tuple[list[Term], list[Term]]:
        later = {f"the {of} of `{own.path}`" for own in in_order for of in ("input", "output") if own.place >= place}
        every = [Term(words, next((one for one in of if one.shape == like.shape), of[0])) for words, of in forms]
        return [one for one in every if one.words not in later], [one for one in every if one.words in later]

    unseen = list[str]()
    used = {one.place for one in pairs.values()}
    left = {one.path: one for one in _own_calls(inside) if one.place not in used}

    def change(call: EngineCall) -> Tensor | None:
        own = pairs.get(call.path) or left.get(call.path)  # experts may have got other tokens in the engine's own run
        if own is None or not _fits(own, call):
            unseen.append(call.path)
            return None
        pairs[call.path] = own
        layout = _layout(own, call)
        given, gave = _laid(own.given, layout, call.given), _laid(own.gave, layout, call.gave)
        terms = fitting(own.place, call.given)
        steps.append(InnerStep(own.path, given, call.given.float().cpu(), call, None, *terms, block, (*unseen,)))
        unseen.clear()
        made = applied(call.module.forward, call.module, given)
        assert made is not None
        steps.append(InnerStep(own.path, gave, made, call, given, block=block))
        block.outputs[call.path] = gave.to(call.gave)
        return block.outputs[call.path]

    made = engine.run(change).float().cpu()
    yield from steps
    own = inside.tensors[1].float()
    yield InnerStep(whole, own, made, None, None, *fitting(len(inside.calls), own), block, (*unseen,))
