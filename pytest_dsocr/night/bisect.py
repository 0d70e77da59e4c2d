"""The first bad commit between a good and a bad one: git chooses, and a run of its own judges each."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import HASH_CHARACTERS, entry, listed
from pytest_dsocr.night.record import RIGHT, WRONG, cells_of, wrong_in
from pytest_dsocr.night.spells import Cell

Word = Literal["good", "bad", "skip"]
GOOD: Word
BAD: Word
SKIP: Word
GOOD, BAD, SKIP = "good", "bad", "skip"
TEMPORARY = "dsocr-bisect-"
ONLY_SKIPPED = 2
"""The exit status of ``git bisect`` where it cannot say more, for commits that were skipped."""


class Judged(NamedTuple):
    """What a run says of a commit."""

    word: Word
    why: str


class Step(NamedTuple):
    """A commit that was judged."""

    commit: str
    subject: str
    """The first line of its message."""
    judged: Judged


@dataclass(frozen=True)
class Found:
    """What is known in the end."""

    steps: Sequence[Step]
    first_bad: tuple[str, ...]
    """One commit; several where those that would tell could not be run."""
    message: str = ""
    """Of the one commit: who, when, and the whole message."""

    @property
    def why(self) -> str:
        """What went wrong there."""
        return next((one.judged.why for one in self.steps if (one.commit,) == self.first_bad), "")

    def lines(self) -> Iterator[str]:
        """Yield it in words."""
        if len(self.first_bad) > 1:
            yield from entry("first bad", f"one of {listed([one[:HASH_CHARACTERS] for one in self.first_bad], 20)}")
            yield from entry("", "commits between them could not be run")
            return
        yield from entry("first bad", self.first_bad[0])
        for line in self.message.splitlines():
            yield f"    {line}".rstrip()
        yield from entry("what is wrong", self.why, 6)


def bisect(good: str, bad: str, judge: Callable[[str], Judged]) -> Generator[Step, None, Found]:
    """Look for the first bad commit, and yield each commit that was judged; the checkout here is left alone.

    Args:
        good: a commit, tag or branch of the repository here.
        bad: one that came later.
        judge: judges a commit.

    Returns:
        What is known in the end.

    Raises:
        DsocrError: where either is no commit, the good one is not good, or the bad one not bad.
    """
    ends = _commit(good), _commit(bad)
    steps: list[Step] = []

    def judged(commit: str) -> Generator[Step, None, Judged]:
        steps.append(Step(commit, _git("show", "-s", "--format=%s", commit).strip(), judge(commit)))
        yield steps[-1]
        return steps[-1].judged

    for name, commit, word in ((good, ends[0], GOOD), (bad, ends[1], BAD)):
        found = yield from judged(commit)
        if found.word != word:
            but = "cannot be run" if found.word == SKIP else found.word
            raise DsocrError(f"{name} is not {word}, but {but}: {found.why}; name another commit")
    with _state(*ends) as (tree, said):
        while (first := _first_bad(said)) is None:
            commit = _git("rev-parse", "BISECT_HEAD", at=tree).strip()
            found = yield from judged(commit)
            said = _git("bisect", found.word, commit, at=tree, allowed=(0, ONLY_SKIPPED))
    message = _git("show", "-s", "--format=%an, %as%n%n%B", first[0]).strip() if len(first) == 1 else ""
    return Found(steps, first, message)


def judged_by(result: Mapping[str, Any], stage: str | None = None, case: str | None = None) -> Judged:
    """Judge a commit by the result of its run.

    Args:
        result: what ``dsocr.json`` holds.
        stage: judge by this stage alone.
        case: judge by this case alone.
    """
    cells: dict[Cell, str] = {
        (name, of): letter
        for name, stages in cells_of([result]).items()
        for of, letter in stages.items()
        if stage in (None, of) and case in (None, name)
    }
    if not result["comparisons"]:
        return Judged(SKIP, f"nothing was compared: {_why(result)}")
    wrong = [cell for cell, letter in cells.items() if letter == WRONG]
    if wrong:
        found = [one for one in wrong_in("", result) if case in (None, one.case) and stage in (None, one.stage)]
        first = next((f"{one.case}, {one.what}: {one.measured}" for one in found), f"{wrong[0][0]}, {wrong[0][1]}")
        cause = next((f"; check {one.cause}" for one in found if one.cause), "")
        return Judged(BAD, f"{first}{cause}" + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""))
    if any(letter in RIGHT for letter in cells.values()):
        return Judged(GOOD, result["verdict"])
    return Judged(SKIP, f"nothing of {stage or case} was compared: {_why(result)}")


def _why(result: Mapping[str, Any]) -> str:
    return next((test["why"] for test in result["tests"] if test["why"]), str(result["verdict"]))


@contextmanager
def _state(good: str, bad: str) -> Iterator[tuple[Path, str]]:
    """Begin a bisection in a work tree without files, for each has its own; yield it, and what git said."""
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        tree = Path(folder).resolve() / "state"
        _git("worktree", "add", "--detach", "--quiet", "--no-checkout", str(tree), bad)
        try:
            yield tree, _git("bisect", "start", "--no-checkout", bad, good, at=tree)
        finally:
            _git("worktree", "remove", "--force", "--force", str(tree))


def _first_bad(said: str) -> tuple[str, ...] | None:
    """Read what git said; None where it goes on."""
    if " is the first bad commit" in said:
        return (said.partition(" is the first bad commit")[0].split()[-1],)
    _, found, commits = said.partition("The first bad commit could be any of:")
    return tuple(word for word in commits.split() if len(word) >= 40) if found else None


def _commit(name: str) -> str:
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except DsocrError as error:
        raise DsocrError(f"{name!r} is no commit of the repository here; give a commit, a tag or a branch") from error


def _git(*arguments: str, at: Path | None = None, allowed: Sequence[int] = (0,)) -> str:
    where = ["-C", str(at)] if at else []
    try:
        done = subprocess.run(["git", *where, *arguments], capture_output=True, text=True, start_new_session=True)
    except FileNotFoundError:
        raise DsocrError("git is not installed; install it to look for a commit") from None
    if done.returncode not in allowed:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise DsocrError(f"git {arguments[0]} failed: {said[-1] if said else 'without a word'}")
    return done.stdout
