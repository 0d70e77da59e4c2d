"""Both sides of a run, opened and asked as its config says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_dsocr.case import Case
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.contract.special import TextTokenizer
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.exact import exact
from pytest_dsocr.goldens import recording_places
from pytest_dsocr.options import Config
from pytest_dsocr.parity import CaseReport, Exchange, ask, judge
from pytest_dsocr.report.payload import CasePayload, of_case
from pytest_dsocr.session_reference.reference import SessionReference, open_session_reference
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from pytest_dsocr.subjects.watch import current
from pytest_dsocr.substitution import substitute
from pytest_dsocr.vendor.live.reference import LiveReference
from pytest_dsocr.vendor.opening import Wanted, open_recorded, open_reference
from pytest_dsocr.vendor.provenance import Key
from pytest_dsocr.vendor.reference import OnProgress, Reference


@cache
def key_of(setup: Setup) -> Key:
    """Give the key of the subject; once, for every test asks, and the real vocabulary takes a third of a second."""
    return Wanted(resolve(setup.checkpoint), setup.device, setup.dtype, setup.attention).key


def open_wanted(config: Config, on_progress: OnProgress | None = None) -> Reference:
    """Open the reference that a run is held against; a live one is ready to answer.

    Args:
        config: of the run.
        on_progress: told of a live one's progress.

    Raises:
        DsocrError: where it is not to be had.
    """
    wanted = Wanted(
        resolve(config.checkpoint), config.reference_device, config.reference_dtype, config.reference_attention
    )
    places = recording_places(config.golden)
    if config.reference == "session":
        return open_session_reference(places, wanted, time_limit_s=config.time_limit)
    if config.reference is None:
        return open_recorded(places, wanted)
    reference = open_reference(
        config.reference, wanted, env=config.vendor_env, time_limit_s=config.time_limit, on_progress=on_progress
    )
    if isinstance(reference, LiveReference):
        reference.start()
    return reference


def own_limits(config: Config, subject: Any) -> Tolerances:
    """Give how far a subject may be from itself."""
    return tolerances(_dtype(config.setup, subject)).but(config.tolerances)


def limits_of(config: Config, subject: Any, reference: Reference) -> Tolerances:
    """Give how far the sides may be apart: outputs are exact where their keys are the same."""
    return limits_between(subject, reference, config.setup).but(config.tolerances)


def limits_between(subject: Any, reference: Reference, setup: Setup) -> Tolerances:
    """Give the limits that follow from the sides' dtypes and keys alone."""
    made = reference.provenance
    return tolerances(_dtype(setup, subject), made.dtype, same_key=key_of(setup) == made.key)


def hold(
    case: Case, subject: Any, reference: Reference, setup: Setup, limits: Tolerances, *, always_read: bool = False
) -> CaseReport:
    """Ask both sides about ``case`` and judge them, with what the reference's tensors tell where something is wrong."""
    asked = ask(subject, reference, case, always_read=always_read, tokenizer=_tokenizer(setup.checkpoint))
    findings = substitute(subject, asked, limits, donor=lambda: _donor(setup))
    return judge(replace(asked, findings=findings), limits)


def exchange(
    case: Case, place: int, subject: Any, reference: Reference, config: Config
) -> tuple[Exchange, CasePayload]:
    """Ask both sides about ``case``, and judge them under the run's own limits; its folder gets a picture.

    Of the first case every subject is heard reading by itself: that its ``read`` goes through its stages is its word.

    Raises:
        DsocrError: where one of them could not answer, or both would be the session.
    """
    if isinstance(reference, SessionReference):
        reference.check_other_than(subject, config.subject, case)
    limits = limits_of(config, subject, reference)
    report = hold(case, subject, reference, config.setup, limits, always_read=place == 0)
    return report.exchange, of_case(report, place=place, picture=_picture(report, config.out))


def _dtype(setup: Setup, subject: Any) -> str:
    dtype: str = exact(str(getattr(subject, "dtype", setup.dtype)))
    return dtype


@cache
def _tokenizer(checkpoint: str) -> TextTokenizer:
    return resolve(checkpoint).tokenizer


@cache
def _donor(setup: Setup) -> SessionSubject:
    """Load what lends to a subject that is wrong: once, for it may be of full size."""
    return session_subject(setup)


def _picture(report: CaseReport, folder: Path | None) -> str | None:
    if folder is None:
        return None
    from pytest_dsocr.report.pictures import draw

    try:
        return draw(report, folder).relative_to(folder).as_posix()
    except DsocrError as error:  # a comparison is not lost for want of its picture
        current().note(f"there is no picture of {report.case.id}: {error}")
        return None
