"""Header of a run: the subject and what it offers, the reference, and the pages."""

import pytest

import pytest_dsocr
from pytest_dsocr.base.words import plain
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.plugin.loading import is_live
from pytest_dsocr.plugin.stash import NOTES
from pytest_dsocr.records.config import Config, Level
from pytest_dsocr.reference.goldens import RECORDINGS, part_of
from pytest_dsocr.subjects.loading import level_before_loading, offers_before_loading


def header(config: pytest.Config) -> list[str]:
    """Return the lines of the header. They include the notes of the run so far."""
    own = own_config(config)
    lines = [
        f"pytest-dsocr {pytest_dsocr.__version__} from {pytest_dsocr.__path__[0]}",
        f"subject {own.subject} on {', '.join(vars(own.setup).values())}; offers {_offered(own)}",
        f"reference {_reference(own)}; pages {' '.join(own.pages)}, {' '.join(own.presets)}, {' '.join(own.prompts)}",
        *config.stash.get(NOTES, []),
    ]
    return [plain(f"dsocr: {line}") for line in lines]


def _offered(own: Config) -> str:
    offered = level_before_loading(own.subject, may_import=not own.isolate)
    offers = offers_before_loading(own.subject, may_import=not own.isolate)
    levels = ", ".join(f"{level} {level.meaning}" for level in Level if offered is not None and level <= offered)
    return f"{levels or 'what it says when it is loaded'}{offers.summary}"


def _reference(own: Config) -> str:
    """Say where the reference comes from, and of which device, dtype and attention it is."""
    key = ", ".join(own.reference_key)
    where = part_of(own.golden, RECORDINGS)
    if own.reference is None:
        return f"recorded, {where}, {key}, or the nearest recording"
    if own.reference == "engine":
        return f"recorded, or else by the engine, {where}, {key}"
    return f"{'live' if is_live(own) else 'recorded'}, {own.reference}, {key}"
