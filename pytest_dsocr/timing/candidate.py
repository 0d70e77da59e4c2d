"""A side of ``dsocr bench``: a commit, an environment, a subject, or the files here."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.process import commit_here

HERE, ENVIRONMENT, SUBJECT = ".", "env:", "subject:"
VALID = (
    "give a commit, tag or branch of the repository here, env:FOLDER, subject:package.module:factory, or . for the "
    "files here as they are"
)
OWN_ROOT = Path(__file__).parents[2]
"""Folder of this package: a checkout, or the folder that packages are installed in."""
TEMPORARY = "dsocr-bench-"


@dataclass(frozen=True)
class Candidate:
    """Code that one side runs."""

    name: str
    """Name that the user gave."""
    folder: Path
    """Working folder; its modules come first, as with ``python -m``."""
    python: Path = field(default_factory=lambda: Path(sys.executable))
    path: tuple[Path, ...] = ()
    """Folders that are searched for modules before all others."""
    subject: str | None = None
    """Subject of this side; None if it uses the subject of both sides."""
    commit: str = ""
    """See :func:`pytest_dsocr.base.process.commit_here`."""
    is_required: bool = False
    """Whether code of ``path`` must be loaded, because the name refers to nothing else."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables of its process."""
        given = [Path(one).absolute() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
        own = [OWN_ROOT] if self.python == Path(sys.executable) else []
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*self.path, *given, *own)))}


@contextmanager
def opened(name: str) -> Iterator[Candidate]:
    """Prepare the candidate that ``name`` refers to; temporary folders are removed at the end.

    Raises:
        DsocrError: if the name refers to nothing; the message lists what is valid.
    """
    if name == HERE:
        root = _root() or Path.cwd()
        yield Candidate(HERE, Path.cwd(), path=_import_folders(root), commit=commit_here() or "")
    elif name.startswith(ENVIRONMENT):
        yield _environment(name)
    elif name.startswith(SUBJECT):
        yield Candidate(name, Path.cwd(), subject=name.removeprefix(SUBJECT), commit=commit_here() or "")
    else:
        with _worktree(name) as candidate:
            yield candidate


def _environment(name: str) -> Candidate:
    folder = Path(name.removeprefix(ENVIRONMENT)).expanduser().absolute()
    python = folder / "bin" / "python"
    if not python.is_file():
        raise DsocrError(f"{name} is no environment: there is no {python}; make one with python -m venv")
    return Candidate(name, Path.cwd(), python, commit=commit_here() or "")


@contextmanager
def _worktree(name: str) -> Iterator[Candidate]:
    root = _root()
    if root is None:
        raise DsocrError(f"{name!r} names nothing to measure, and there is no git repository here; {VALID}")
    done = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if done.returncode:
        raise DsocrError(f"{name!r} names nothing to measure, and {root} has no such commit; {VALID}")
    commit, inside = done.stdout.strip(), Path.cwd().resolve().relative_to(root.resolve())
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        tree = Path(folder).resolve() / "tree"
        try:
            made = _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
            if made.returncode:
                last = (made.stderr.strip().splitlines() or ["without a word"])[-1]
                raise DsocrError(f"{name} cannot be checked out: {last}")
            at = tree / inside if (tree / inside).is_dir() else tree
            yield Candidate(name, at, path=_import_folders(tree), commit=commit, is_required=True)
        finally:
            _git("-C", str(root), "worktree", "remove", "--force", "--force", str(tree))


def _import_folders(root: Path) -> tuple[Path, ...]:
    return (*((root / "src",) if (root / "src").is_dir() else ()), root)


def _root() -> Path | None:
    done = _git("rev-parse", "--show-toplevel")
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, start_new_session=True)
    except FileNotFoundError:
        return subprocess.CompletedProcess(arguments, 127, "", "git is not installed")
