"""The reference of a run, opened as its config says: recorded, live, or the session where nothing is recorded."""

from __future__ import annotations

from dataclasses import replace

from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.observation.config import Config
from pytest_dsocr.reference.answers import KeptReference, Store, making_of
from pytest_dsocr.reference.environment import answers_folder
from pytest_dsocr.reference.goldens import recording_places
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.nearest import WAYS
from pytest_dsocr.reference.opening import Wanted, open_recorded, open_reference
from pytest_dsocr.reference.protocol import OnProgress, Reference
from pytest_dsocr.reference.session import open_session_reference
from pytest_dsocr.subjects.calls import current


def reference_of(config: Config, on_progress: OnProgress | None = None) -> Reference:
    """Open the reference of a run. A live one is ready to answer.

    Args:
        config: of the run.
        on_progress: called with the progress of a live one.

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
    return KeptReference(reference, Store(answers_folder(), making), current().note, fresh=config.fresh)
