"""A subject asked by itself: what it reads, which needs no reference."""

from __future__ import annotations

import torch

from pytest_dsocr.contract.markup import parse
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import SpanSeen
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.protocol import TextSubject


def read_alone(subject: TextSubject, case: Case) -> Answer:
    """Have ``subject``, of any level, read the case's page to its end; gives text and spans, and nothing else.

    Raises:
        SubjectFaultError: where it raises, or gives no text.
    """
    asked = CheckedSubject(subject)
    with torch.no_grad():
        text = asked.read(case)
    spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text).spans)
    return Answer(case.id, asked.level, text, spans)


def reading_of(answer: Answer) -> Answer:
    """Give of an answer what :func:`read_alone` would; raise the subject's error where the reading was lost to it."""
    if "read" in answer.lost:
        answer.whole()
    return Answer(answer.case_id, answer.level, answer.text, answer.spans)
