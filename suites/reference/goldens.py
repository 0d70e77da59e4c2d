"""Cases of a run, the folder of its recordings, and files of anchors."""

from collections.abc import Sequence
from pathlib import Path

from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config
from pytest_dsocr.reference import goldens
from pytest_dsocr.reference.environment import family_in
from pytest_dsocr.reference.goldens import MANIFEST, RECORDINGS, part_of, shipped_folder


def recordings_of(config: Config) -> Path:
    """Return the folder of recordings: the run's own, that of its golden folder, or the shipped one."""
    named = config.reference
    if not isinstance(named, Path) or family_in(named):
        return part_of(config.golden, RECORDINGS)
    return named.resolve().parents[1] if (named / MANIFEST).is_file() else named


def anchors_of(config: Config, family: ModelSpec) -> Path:
    """Return a family's file of anchors in the folder of recordings, or the shipped one if there is none."""
    own = goldens.anchors_of(recordings_of(config), family)
    return own if own.is_file() else goldens.anchors_of(shipped_folder() / RECORDINGS, family)


def cases_of(config: Config, family: ModelSpec) -> Sequence[Case]:
    """Return the run's cases whose pages can be read, of all shards."""
    from pytest_dsocr.pages.named import make_cases

    named = make_cases(config.pages, config.prompts, config.presets, config.max_new_tokens, family=family)
    return named.readable().good
