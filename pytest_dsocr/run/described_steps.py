"""Describe wrong logits of steps: the slots of the cache that differ, or else the steps that do."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeVar

import torch
from torch import OutOfMemoryError, Tensor

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.tokens import logit_errors
from pytest_dsocr.contract import ROWS
from pytest_dsocr.describe.cache import describe_steps, rows_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.tensors import EARLIER_PAGE
from pytest_dsocr.models import STAGES
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.block_seams import blocks_at
from pytest_dsocr.records.config import Level, NotOfferedError, SubjectFaultError
from pytest_dsocr.records.inside import Inside, watch_inside
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import TextSubject

Shown = TypeVar("Shown")


class Kept(NamedTuple):
    """Tensors of a subject after some steps."""

    layers: list[tuple[Tensor, Tensor]]
    """Keys and values of each layer ``[S, C]``."""
    attended: dict[int, Tensor]
    """Results of attention ``[T, C]``, by layer."""
    gave: dict[int, Tensor]
    """Outputs of layers ``[T, C]``."""


MOST_AFTER = 64
"""Number of steps after the first wrong one that fill the cache."""


def describe_logits(
    report: CaseReport, subject: TextSubject, resources: RunResources, *, alone: bool = False
) -> Description | None:
    """Return which slots of the cache differ, or which steps; None if neither is known.

    If ``alone``, the prompt's logits are wrong for another cause, and the steps are compared with the engine's for the
    subject's own prompt.
    """
    answer, expected = report.exchange.answer, report.exchange.expected
    errors, allowed = logit_errors(answer.forced or (), expected.steps), report.limits.logits
    first = next((k for k, one in enumerate(errors) if not one <= allowed), 0)
    first = min(1, len(errors) - 1) if alone else first
    if not first or answer.input_tensors is None or not resources.explainer.budget_s:
        return None
    tokens = expected.token_ids[: min(first + MOST_AFTER, len(errors) - 1)]
    kept = shown(f"the cache of {report.case.id}", lambda: _kept(report, subject, tokens, first - 1))
    given = {name: answer.input_tensors[name] for name in ROWS}
    given |= {FUSION: features} if (features := (answer.vision_tensors or {}).get(FUSION)) is not None else {}
    earlier = resources.earlier_than(report.case)
    of_cache = None if kept is None else resources.explainer.describe_cache(report, tokens, given, *kept, earlier)
    if of_cache is not None and of_cache.explains:
        return of_cache
    if alone:
        return None
    return describe_steps(errors, allowed, of_cache is not None)


def describe_prompt(report: CaseReport, subject: TextSubject, resources: RunResources) -> Description | None:
    """Return what is wrong in the cache after the prompt, if it is that of a page which was read before."""
    earlier = resources.earlier_than(report.case)
    if not earlier or report.exchange.answer.level < Level.STAGES:
        return None
    kept = shown(f"the cache of {report.case.id}", lambda: _kept(report, subject, (), 0))
    found = None if kept is None else resources.explainer.describe_cache(report, (), {}, *kept, earlier)
    return found if found is not None and found.kind == EARLIER_PAGE and found.explains else None


def shown(what: str, ask: Callable[[], Shown]) -> Shown | None:
    """Return the subject's answer; None if it does not offer it, or fails, which is noted."""
    try:
        with torch.no_grad():
            return ask()
    except NotOfferedError:
        return None
    except (SubjectFaultError, MachineError, OutOfMemoryError) as error:
        current().note(f"{what} is not described: {str(error).splitlines()[0]}")
        return None


def _kept(report: CaseReport, subject: TextSubject, tokens: Sequence[int], first: int) -> Kept:
    """Return the subject's cache after these tokens, and its attention in the steps from the wrong one on."""
    answer, asked = report.exchange.answer, CheckedSubject(subject)
    state, _ = asked.prefill(answer.input_tensors or {}, (answer.vision_tensors or {}).get(FUSION))
    for token in tokens[:first]:
        asked.step(state, token)
    with ExitStack() as watched:
        calls = [watched.enter_context(watch_inside(one)) for one in _blocks(asked)]
        for token in tokens[first:]:
            asked.step(state, token)
    layers = [(rows_of(keys).cpu(), rows_of(values).cpu()) for keys, values in KvProbe(state).layers]
    every = {layer: of for layer, of in enumerate(calls) if len(of) == len(tokens) - first}
    results = {layer: [*map(_result, of)] for layer, of in every.items()}
    whole = {layer: [one for one in of if one is not None] for layer, of in results.items()}
    attended = {k: torch.stack(of) for k, of in whole.items() if of and len(of) == len(results[k])}
    gave = {layer: torch.stack([one.gave.flatten().float() for one in of]) for layer, of in every.items() if of}
    return Kept(layers, attended, gave)


def _blocks(asked: CheckedSubject) -> list[object]:
    """Return the decoder's layers; nothing if the subject does not show them."""
    blocks = next(stage.blocks for stage in STAGES if stage.name == PREFILL)
    if asked.level < Level.MODULES:
        return []
    with suppress(AttributeError):
        return [*blocks_at(asked.subject.module, blocks)]
    return []


def _result(layer: Inside) -> Tensor | None:
    """Return the result of attention in one step; None if it is not seen."""
    given = [layer.tensors[one.given] for one in layer.calls if one.path.rpartition(".")[2] == "o_proj"]
    return given[0].flatten().float() if len(given) == 1 else None
