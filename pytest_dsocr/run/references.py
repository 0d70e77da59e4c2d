"""Reference of a run, and folders that hold its answers."""

from dataclasses import replace
from pathlib import Path

from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.records.config import Config
from pytest_dsocr.reference.engine import open_engine_reference
from pytest_dsocr.reference.goldens import recording_places, shipped_folder
from pytest_dsocr.reference.kept import usual_folder
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.nearest import WAYS
from pytest_dsocr.reference.opening import WantedReference, open_recorded, open_reference
from pytest_dsocr.reference.protocol import OnProgress, Reference


def reference_of(config: Config, on_progress: OnProgress | None = None) -> Reference:
    """Open the reference of a run, and start a live one, which reports its progress.

    Raises:
        DsocrError: if it cannot be opened.
    """
    named = frozenset(way for way in WAYS if getattr(config, f"reference_{way}"))
    wanted = WantedReference(resolve(config.checkpoint), *config.reference_key, named)
    places = recording_places(config.golden)
    limits = {"time_limit_s": config.time_limit, "start_limit_s": config.start_limit}
    if config.reference == "engine":
        of_this_key = replace(wanted, fixed=WantedReference.fixed)  # the engine answers for cases without a recording
        return open_engine_reference(places, of_this_key, kept_in(config), **limits)
    if config.reference is None:
        return open_recorded(places, wanted)
    reference = open_reference(
        config.reference,
        wanted,
        env=config.vendor_env,
        keep_files=config.out is not None,
        on_progress=on_progress,
        **limits,
    )
    if isinstance(reference, LiveReference):
        reference.start()
    return reference


def answers_of(config: Config) -> tuple[Path, ...]:
    """Return the folders with a reference's answers: goldens, the shipped ones too, and kept answers."""
    named = None if config.kept_answers == "off" else config.kept_answers
    return tuple(filter(None, (config.golden, shipped_folder(), named, usual_folder())))


def kept_in(config: Config) -> Path | None:
    """Return the folder of the engine's kept answers; None if a run keeps none.

    An isolated subject is not trusted, and its process may write this user's files.
    """
    return None if config.isolate or config.kept_answers == "off" else config.kept_answers or usual_folder()
