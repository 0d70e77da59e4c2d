"""Ask both sides about one case, and judge the answers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from pytest_dsocr.cases.exchange import CaseReport, ask, judge
from pytest_dsocr.cases.substitution import substitute
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.observation.case import Case
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject


def hold(
    case: Case, subject: Any, reference: Reference, setup: Setup, limits: Tolerances, *, always_read: bool = False
) -> CaseReport:
    """Ask both sides about ``case`` and judge them, with what the reference's tensors tell where something is wrong."""
    asked = ask(subject, reference, case, always_read=always_read, tokenizer=_tokenizer(setup.checkpoint))
    findings = substitute(subject, asked, limits, donor=lambda: _donor(setup))
    return judge(replace(asked, findings=findings), limits)


@cache
def _tokenizer(checkpoint: str) -> TextTokenizer:
    return resolve(checkpoint).tokenizer


@cache
def _donor(setup: Setup) -> SessionSubject:
    """Load the session whose tensors are given to a wrong subject; once, as it may be of full size."""
    return session_subject(setup)
