"""Readings of a page: alone, and repeated in one process, directly after one another and after other pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import NotOfferedError, SubjectFaultError
from pytest_dsocr.records.packing import pack_inputs
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.records.subject_result import Reading, SubjectResult
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import digest
from pytest_dsocr.subjects.protocol import TextSubject

Again = Callable[[SubjectResult, ReferenceResult], Iterator[Reading]]
"""Function from the subject's first answer and the reference's to the first reading and further ones."""


@torch.no_grad()
def read_again(
    subject: TextSubject,
    case: Case,
    cases: Sequence[Case],
    times: int,
    on_reading: Callable[[str, int, int], None],
    first: SubjectResult,
    expected: ReferenceResult,
) -> Iterator[Reading]:
    """Yield ``times`` readings of a page, the first of them already done; half of the others follow another page.

    A reading that raises is the last. ``on_reading`` receives an activity, the reading's number and ``times``.
    """
    others, asked, read = [one for one in cases if one != case], CheckedSubject(subject), current().read
    yield Reading(first, next(iter(read[-2:-1]), ""), len(read))
    for k in range(2, times + 1):
        on_reading("reading", k, times)
        after, answer, inputs = read[-1], first, first.inputs
        try:
            if others and k % 2:
                _read_between(asked, others[(k // 2 - 1) % len(others)])
                after = read[-1]
            inputs = inputs and digest(asked.inputs(case, partial=True), expected)
            text = asked.read(case)
        except SubjectFaultError as fault:
            named = type(fault)(fault.stage, f"reading {k} of {times}, after {after}: {fault}")
            named.__cause__ = fault
            yield Reading(replace(first, fault=named, lost=frozenset(("read",))), after, len(read))
            return
        packed = [one and pack_inputs(one)[0] for one in (inputs, first.inputs)]
        if text != first.text or packed[0] != packed[1]:
            answer = replace(first, text=text, spans=case.spans_in(text), inputs=inputs, ended_by=asked.ended_by)
        yield Reading(answer, after, len(read))


def _read_between(asked: CheckedSubject, other: Case) -> None:
    """Read another page; an error that comes again is that page's, and told by its own case."""
    try:
        asked.read(other)
    except SubjectFaultError:
        try:
            asked.read(other)
        except SubjectFaultError:
            return
        raise


@torch.no_grad()
def read_alone(subject: TextSubject, case: Case) -> SubjectResult:
    """Read the case's page to its end with ``subject``, of any level; return text and spans, and nothing else.

    Raises:
        SubjectFaultError: where it raises, or gives no text.
    """
    asked = CheckedSubject(subject)
    text = asked.read(case)
    return SubjectResult(case.id, asked.level, text, case.spans_in(text))


def reading_of(answer: SubjectResult) -> SubjectResult:
    """Return of an answer what :func:`read_alone` would; raise the subject's error where the reading was lost to it.

    Raises:
        NotOfferedError: where the subject offers none of this case.
    """
    if "read" in answer.lost:
        answer.whole()
        raise NotOfferedError(f"not offered: a text of {answer.case_id}")
    return SubjectResult(answer.case_id, answer.level, answer.text, answer.spans)
