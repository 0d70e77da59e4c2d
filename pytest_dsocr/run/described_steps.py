"""Describe wrong logits of steps: the slots of the cache that differ, or else the steps that do."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import OutOfMemoryError, Tensor

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.tokens import logit_errors
from pytest_dsocr.describe.cache import describe_steps, rows_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.records.config import NotOfferedError, SubjectFaultError
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import TextSubject

Shown = TypeVar("Shown")
MOST_AFTER = 64
"""Number of steps after the first wrong one that fill the cache."""


def describe_logits(report: CaseReport, subject: TextSubject, resources: RunResources) -> Description | None:
    """Return which slots of the cache differ, or which steps; None if neither is known."""
    answer, expected = report.exchange.answer, report.exchange.expected
    errors, allowed = logit_errors(answer.forced or (), expected.steps), report.limits.logits
    first = next((k for k, one in enumerate(errors) if not one <= allowed), 0)
    if not first or answer.input_tensors is None or not resources.explainer.budget_s:
        return None
    tokens = expected.token_ids[: min(first + MOST_AFTER, len(errors) - 1)]
    kept = shown(f"the cache of {report.case.id}", lambda: _kept(report, subject, tokens))
    of_cache = None if kept is None else resources.explainer.describe_cache(report, tokens, kept)
    if of_cache is not None and of_cache.explains:
        return of_cache
    return describe_steps(errors, allowed, of_cache is not None)


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


def _kept(report: CaseReport, subject: TextSubject, tokens: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return the subject's keys and values of each layer ``[S, C]``, after these tokens."""
    answer, asked = report.exchange.answer, CheckedSubject(subject)
    state, _ = asked.prefill(answer.input_tensors or {}, (answer.vision_tensors or {}).get(FUSION))
    for token in tokens:
        asked.step(state, token)
    return [(rows_of(keys).cpu(), rows_of(values).cpu()) for keys, values in KvProbe(state).layers]
