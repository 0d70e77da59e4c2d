"""Where goldens are: those of the folder that one works in, and behind them the shipped ones."""

from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.spec import ModelSpec

PACKAGE_FOLDER = Path(__file__).parents[1]
OWN = Path("golden")
"""Relative to the working directory: looked into first, and written to."""
RECORDINGS, SNAPSHOTS, BASELINES, ANCHORS = "vendor", "snapshots", "baselines", "anchors.json"


def golden_folder(*, is_written: bool = False) -> Path:
    """Return the folder with any of the three: ``./golden`` where it is one or is empty, else the shipped one.

    To be written to, ``./golden`` is the one as well where the shipped one is in the installed package.
    """
    own, shipped = OWN.absolute(), shipped_folder()
    is_one = any((own / part).is_dir() for part in (RECORDINGS, SNAPSHOTS, BASELINES))
    is_one = is_one or (own.is_dir() and not any(own.iterdir())) or (is_written and _is_installed(shipped))
    return own if is_one else shipped


def shipped_folder() -> Path:
    """Return the one in the wheel, or that of the checkout."""
    packaged = PACKAGE_FOLDER / "golden"
    return packaged if packaged.is_dir() else PACKAGE_FOLDER.parent / "golden"


def part_of(golden: Path, name: str) -> Path:
    """Return the recordings or the snapshots of a folder of goldens, or the shipped ones where it holds none."""
    own = golden / name
    return own if own.is_dir() else shipped_folder() / name


def recording_places(golden: Path) -> list[Path]:
    """Return where a recording is looked for, in this order: the folder's own, then the shipped ones."""
    return list(dict.fromkeys((part_of(golden, RECORDINGS), shipped_folder() / RECORDINGS)))


def baseline_places(golden: Path) -> list[Path]:
    """Return where baselines are searched: the folder's own, to which they are written, then the shipped ones."""
    own, shipped = golden / BASELINES, shipped_folder() / BASELINES
    return [own] if own.resolve() == shipped.resolve() else [own, shipped]


def facts_of(recordings: Path, family: ModelSpec) -> Path:
    """Return where in a folder of recordings a family's facts are; all but the first have a folder of their own."""
    return recordings if family.is_unmarked else recordings / family.name


def anchors_of(recordings: Path, family: ModelSpec) -> Path:
    """Return the anchors of a family in a folder of recordings."""
    return facts_of(recordings, family) / ANCHORS


def anchors_file(family: ModelSpec) -> Path:
    """Return the anchors that drift is measured from: those beside one's own recordings, or the shipped ones."""
    own = anchors_of(OWN / RECORDINGS, family)
    return own if own.is_file() else anchors_of(shipped_folder() / RECORDINGS, family)


def check_writable(path: Path, instead: str) -> None:
    """Raise ``DsocrError`` where ``path`` is in the installed package, which is not to be written to.

    Args:
        path: of goldens.
        instead: the option that names another place.
    """
    if _is_installed(path):
        raise DsocrError(f"{path} would be written, in the installed package; name a folder of your own: {instead}")


def _is_installed(path: Path) -> bool:
    return path.resolve().is_relative_to(PACKAGE_FOLDER.resolve())
