"""Folders of goldens: ``golden`` in the working directory first, then the shipped one."""

from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.spec import ModelSpec

PACKAGE_FOLDER = Path(__file__).parents[1]
OWN = Path("golden")
"""Folder that is searched first and written to, relative to the working directory."""
RECORDINGS, SNAPSHOTS, BASELINES, ANCHORS = "vendor", "snapshots", "baselines", "anchors.json"
MANIFEST = "manifest.json"
"""File of a recording that lists its parts."""


def golden_folder(*, is_written: bool = False) -> Path:
    """Return ``./golden`` if it contains goldens or is empty, else the shipped folder.

    If it ``is_written`` and the shipped folder is in the installed package, return ``./golden`` in any case.
    """
    own, shipped = OWN.absolute(), shipped_folder()
    is_one = any((own / part).is_dir() for part in (RECORDINGS, SNAPSHOTS, BASELINES))
    is_one = is_one or (own.is_dir() and not any(own.iterdir())) or (is_written and _is_installed(shipped))
    return own if is_one else shipped


def shipped_folder() -> Path:
    """Return the folder of the installed package, or of the checkout."""
    packaged = PACKAGE_FOLDER / "golden"
    return packaged if packaged.is_dir() else PACKAGE_FOLDER.parent / "golden"


def part_of(golden: Path, name: str) -> Path:
    """Return a subfolder of ``golden``, or the shipped one if it is missing."""
    own = golden / name
    return own if own.is_dir() else shipped_folder() / name


def recording_places(golden: Path) -> list[Path]:
    """Return the folders to search for recordings: first that in ``golden``, then the shipped one."""
    return list(dict.fromkeys((part_of(golden, RECORDINGS), shipped_folder() / RECORDINGS)))


def baseline_places(golden: Path) -> list[Path]:
    """Return the folders to search for baselines: that in ``golden``, which is written to, then the shipped one."""
    own, shipped = golden / BASELINES, shipped_folder() / BASELINES
    return [own] if own.resolve() == shipped.resolve() else [own, shipped]


def facts_of(recordings: Path, family: ModelSpec) -> Path:
    """Return the folder with a model's facts in a folder of recordings. The first model has no subfolder."""
    return recordings if family.is_unmarked else recordings / family.name


def anchors_of(recordings: Path, family: ModelSpec) -> Path:
    """Return a model's file of anchors in a folder of recordings."""
    return facts_of(recordings, family) / ANCHORS


def anchors_file(family: ModelSpec) -> Path:
    """Return the anchors to compare the vendor's files with: the user's own, or the shipped ones."""
    own = anchors_of(OWN / RECORDINGS, family)
    return own if own.is_file() else anchors_of(shipped_folder() / RECORDINGS, family)


def check_writable(path: Path, instead: str) -> None:
    """Raise ``DsocrError`` if ``path`` is in the installed package, which must not be written to.

    Args:
        path: a file or folder of goldens.
        instead: the option that names another folder.
    """
    if _is_installed(path):
        raise DsocrError(f"{path} is in the installed package, which is read-only; name your own folder: {instead}")


def _is_installed(path: Path) -> bool:
    return path.resolve().is_relative_to(PACKAGE_FOLDER.resolve())
