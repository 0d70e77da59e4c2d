"""Both sides of a run, opened and asked as its config says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_dsocr.cases.config import Config
from pytest_dsocr.cases.exchange import CaseReport, Exchange
from pytest_dsocr.cases.hold import hold
from pytest_dsocr.cases.limits import limits_of
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case
from pytest_dsocr.plugin.spent import Spent
from pytest_dsocr.reference.environment.environment import answers_folder
from pytest_dsocr.reference.goldens import recording_places
from pytest_dsocr.reference.live.kept import KeptReference, Store, making_of
from pytest_dsocr.reference.live.reference import LiveReference
from pytest_dsocr.reference.opening import Wanted, open_recorded, open_reference
from pytest_dsocr.reference.protocol import OnProgress, Reference
from pytest_dsocr.reference.recorded.case import CUT
from pytest_dsocr.reference.recorded.nearest import WAYS
from pytest_dsocr.report.payload import CasePayload, of_case
from pytest_dsocr.report.times import COMPARING
from pytest_dsocr.session_reference.reference import SessionReference, open_session_reference
from pytest_dsocr.subjects.watch import current

LOG = logging.getLogger(__name__)


def open_wanted(config: Config, on_progress: OnProgress | None = None, coming: Sequence[Case] = ()) -> Reference:
    """Open the reference of a run. A live one is ready to answer.

    Args:
        config: of the run.
        on_progress: called with the progress of a live one.
        coming: cases in their order; a live one works on the next beside the subject.

    Raises:
        DsocrError: if it cannot be opened.
    """
    named = frozenset(way for way in WAYS if getattr(config, f"reference_{way}"))
    wanted = Wanted(resolve(config.checkpoint), *config.reference_key, named)
    places = recording_places(config.golden)
    if config.reference == "session":
        exact = replace(wanted, fixed=Wanted.fixed)  # what is not recorded of this key, the session answers
        return open_session_reference(places, exact, time_limit_s=config.time_limit)
    if config.reference is None:
        return open_recorded(places, wanted)
    reference = open_reference(
        config.reference, wanted, env=config.vendor_env, time_limit_s=config.time_limit, on_progress=on_progress
    )
    if not isinstance(reference, LiveReference):
        return reference
    making = making_of(config.reference, wanted.key, reference.versions())
    kept = KeptReference(reference, Store(answers_folder(), making), current().note, fresh=config.fresh)
    kept.start()
    kept.expect(coming)
    return kept


def exchange(
    case: Case,
    place: int,
    subject: Any,
    reference: Reference,
    config: Config,
    spent: Spent,
    explainer: Explainer,
) -> tuple[Exchange, CasePayload]:
    """Ask both sides about ``case``, judge them within the run's own limits, and draw a picture of the case.

    Always call ``read`` on the first case: nothing else proves that it uses the stages. What that took is added to
    ``spent``.

    Raises:
        DsocrError: where one of them could not answer, or both would be the session.
    """
    if isinstance(reference, SessionReference):
        reference.check_other_than(subject, config.subject, case)
    limits = limits_of(config, subject, reference)
    with spent.on(COMPARING):
        report = hold(case, subject, reference, config.setup, limits, always_read=place == 0)
        spent.add_case(report.exchange)
    found = report.exchange
    if found.theirs.provenance and CUT in found.theirs.provenance.overrides:
        current().note(f"recordings are {CUT}")
    if report.divergence is not None:
        with spent.on("explaining"):
            found = replace(found, explanation=explainer.explain(report))
    payload = of_case(replace(report, exchange=found), place=place)
    for side, shapes in (("reference", payload["shapes"]["reference"]), ("subject", payload["shapes"]["subject"])):
        told = ", ".join(f"{name} {shape}" for name, shape in (shapes or {}).items())
        LOG.info("%s, inputs of the %s: %s", case.id, side, told or "not offered")
    with spent.on("drawing"):
        payload["picture"] = _picture(report, config.out)
    return found, payload


def _picture(report: CaseReport, folder: Path | None) -> str | None:
    if folder is None:
        return None
    from pytest_dsocr.report.pictures import draw
    from pytest_dsocr.report.side_files import side_folder, write_sides

    try:
        picture = draw(report, folder).relative_to(folder).as_posix()
    except DsocrError as error:  # a missing picture must not cost a comparison
        current().note(f"there is no picture of {report.case.id}: {error}")
        return None
    try:
        write_sides(report, folder / side_folder(report.case.id))
    except DsocrError as error:
        current().note(f"what both sides read of {report.case.id} is not kept: {error}")
    return picture
