"""Source of a subject: the package or program that a run tests, with its version and commit."""

import shlex
import shutil
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from msgspec import Struct

from pytest_dsocr.base.process import commit_of

SITE = "site-packages"
ENGINE, PROCESSOR, OWN = "engine", "processor", "pytest-dsocr"


class SubjectSource(Struct, frozen=True):
    """Code that a subject's name leads to, as far as it is on this machine."""

    name: str
    """Name of its distribution, or else of its module, program or folder; empty if it is not known."""
    version: str | None
    """Version of its distribution; None if it is not installed."""
    commit: str | None
    """Commit of its repository, with ``-dirty`` if files differ; None if it is in none."""


@cache
def source_of(subject: str) -> SubjectSource:
    """Return the source of a subject by the value of ``--dsocr-subject``; import nothing."""
    kind, _, rest = subject.partition(":")
    if kind == ENGINE:
        return SubjectSource(OWN, metadata.version(OWN), None)
    module, _, name = (rest if kind == PROCESSOR else subject).partition(":")
    top = module.partition(".")[0]
    place = (_file_of(top) if name.replace(".", "").isidentifier() else None) or _named(rest)
    if place is None:
        return SubjectSource("", None, None)
    name, version = _distribution(top) if SITE in place.parts else ("", None)
    return SubjectSource(
        name or (place.parent.name if place.stem == "__init__" else place.stem), version, _commit(place)
    )


def _file_of(module: str) -> Path | None:
    """Return the file of a top-level module, or the folder of a namespace."""
    known = getattr(sys.modules.get(module), "__file__", None)
    if known or not module.isidentifier():
        return Path(known).absolute() if known else None
    spec = PathFinder.find_spec(module, [str(Path.cwd()), *sys.path])
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    return next((Path(one).absolute() for one in places if one and Path(one).exists()), None)


def _named(rest: str) -> Path | None:
    """Return the folder that a name ends with, or the first file that its command names, or its program."""
    with suppress(ValueError, OSError):  # an open quote, or a name that is too long
        words = shlex.split(rest)
        found = [Path(word).absolute() for word in (rest, *words[1:]) if word and Path(word).exists()]
        program = shutil.which(words[0]) if words else None
        return found[0] if found else Path(program).absolute() if program else None
    return None


def _distribution(module: str) -> tuple[str, str | None]:
    names = metadata.packages_distributions().get(module, ())
    return (names[0], metadata.version(names[0])) if names else ("", None)


def _commit(place: Path) -> str | None:
    """Return the commit of a file's repository; git is asked only where there is one."""
    folder = place if place.is_dir() else place.parent
    return commit_of(folder) if any((one / ".git").exists() for one in (folder, *folder.parents)) else None
