"""``dsocr.json`` from a run's first moment on, so that an unfinished run or an old one is never taken for a pass.

The file says *running* before pytest has loaded a test, and *finished* when everything else is written. Whoever reads
it, reads it through :func:`read_result`. How a run ended is a word in it, and an exit status: CI can tell a wrong model
from a machine out of order. ``docs/running.md`` has the statuses of every command.
"""

from __future__ import annotations

import html
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import sha256, write_whole
from pytest_dsocr.base.process import commit_here
from pytest_dsocr.base.reading import Commit, Format, Moment


class Ending(StrEnum):
    """How a run or one of its tests ended; ``ended_as`` in ``dsocr.json``."""

    PASSES = "passes"
    WRONG = "wrong"
    """The subject is wrong, raised, or whatever else made a test fail for which no other word is certain."""
    INFRASTRUCTURE = "infrastructure"
    """Nothing wrong was seen, and not all was compared, for the machine lacks or lost what is needed."""
    SLOWER = "slower"
    """Everything was compared and nothing is wrong, but times or counts of work are worse than the baseline's."""
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal error"
    REFUSED = "refused"
    NO_TESTS = "no tests"
    CHANGED = "changed"
    """Something wrote over the result that pytest had written; ``dsocr compare`` says so in its place."""


OF_PYTEST = {2: Ending.INTERRUPTED, 3: Ending.INTERNAL_ERROR, 4: Ending.REFUSED, 5: Ending.NO_TESTS}
WRONG, INTERNAL_ERROR, INFRASTRUCTURE, SLOWER = 1, 3, 10, 11
BAD_INPUT, UNDECIDED, BY_INTERRUPT = 2, 12, 130
EXIT_STATUS: Mapping[Ending, int] = {
    Ending.PASSES: 0,
    Ending.WRONG: WRONG,
    Ending.INFRASTRUCTURE: INFRASTRUCTURE,
    Ending.SLOWER: SLOWER,
    Ending.CHANGED: WRONG,
    **{ending: status for status, ending in OF_PYTEST.items()},
}
"""Of ``dsocr compare``. 2 to 5 are pytest's own, and 128 + N is a signal's."""
GRAVEST_FIRST = (Ending.WRONG, Ending.INFRASTRUCTURE, Ending.SLOWER)
"""A run that could not compare everything is not called slower, which a CI may choose to let pass."""


def gravest(found: Iterable[Ending]) -> Ending:
    """Return the one that counts among those of failing tests; WRONG where there is none."""
    endings = {*found}
    return next((one for one in GRAVEST_FIRST if one in endings), Ending.WRONG)


FORMAT = 2
JSON_NAME, INDEX_NAME, SUMMARY_NAME, PAGES = "dsocr.json", "index.html", "summary.md", "pages"
RUNNING, REFUSED, FINISHED, CHANGED = "running", "refused", "finished", "changed"
RUN_ID = "DSOCR_RUN_ID"
"""In the environment: the id that whoever started the run gave it, to know its result by."""
WITNESS = "DSOCR_WITNESS"
"""In the environment until pytest begins: the pipe to whoever started the run, for the digest of each result."""
UNFINISHED = "not finished: the run goes on, was refused, or died"
NOT_WRITTEN = (
    "is not what pytest wrote: something in its process, such as an atexit of the subject's, changed it; take that "
    "out, or give the subject a process of its own: --isolate"
)


class ResultHead(TypedDict):
    """What stands in every result."""

    format: Literal[2]
    status: Literal["running", "refused", "finished", "changed"]
    id: str
    started: Moment
    ended: str | None
    commit: Commit | None
    command: str
    verdict: str
    passes: bool
    ended_as: NotRequired[Ending]


HEADS = Format(ResultHead, "run the suites again")


class RefusedError(DsocrError):
    """The run was refused before it began.

    Args:
        message: one sentence: where that is said, and why.
        ended_as: a word of :class:`pytest_dsocr.report.file.Ending`.
    """

    def __init__(self, message: str, ended_as: str) -> None:
        super().__init__(message)
        self.ended_as = ended_as


class ChangedError(DsocrError):
    """The result is not the one that pytest wrote."""


@dataclass(frozen=True)
class RunIdentity:
    """Which run it is."""

    id: str
    started: str
    """In UTC, as ISO 8601."""
    commit: str | None
    """Of the folder that pytest was called in; see :func:`pytest_dsocr.base.process.commit_here`."""
    command: str

    @classmethod
    def now(cls, command: str) -> RunIdentity:
        """Return that of a run that begins."""
        return cls(os.environ.get(RUN_ID) or uuid.uuid4().hex, now(), commit_here(), command)


def take_witness() -> int | None:
    """Return the pipe for digests, where there is one, and hide it from what runs in this process and is started by it.

    Code of the subject's in this process is trusted code all the same: it could look for the pipe.
    """
    descriptor = os.environ.pop(WITNESS, "")
    if not descriptor.isdecimal():
        return None
    try:
        os.set_inheritable(int(descriptor), False)
    except OSError:
        return None
    return int(descriptor)


def mark_running(folder: Path, identity: RunIdentity) -> None:
    """Replace whatever result is in ``folder`` by the marks of a run that has started; make the folder.

    Raises:
        DsocrError: where nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PAGES).is_symlink():  # below which folders are made anew
            (folder / PAGES).unlink()
    except OSError as error:
        raise DsocrError(f"{folder} cannot be made ({error.strerror}); give another folder") from error
    _mark(folder, identity, {**head(identity, RUNNING), "verdict": UNFINISHED, "passes": False})


def mark_ended(folder: Path, identity: RunIdentity, why: str, ended_as: str, status: str = REFUSED) -> dict[str, Any]:
    """Replace whatever result is in ``folder`` by the reason why there is none; return what was written.

    Args:
        folder: where to.
        identity: of the run.
        why: a sentence.
        ended_as: a word of :class:`Ending`.
        status: REFUSED, or CHANGED.

    Raises:
        DsocrError: where nothing can be written there.
    """
    result = {**head(identity, status), "verdict": why, "passes": False, "ended_as": ended_as}
    _mark(folder, identity, result)
    return result


def _mark(folder: Path, identity: RunIdentity, result: Mapping[str, Any]) -> None:
    """Write a result that has no tests, and a page that says so; an earlier run's summary goes."""
    write_json(folder, result)
    (folder / SUMMARY_NAME).unlink(missing_ok=True)
    told = [html.escape(one) for one in (result["verdict"], identity.command, f"since {identity.started}")]
    page = "<!DOCTYPE html><title>pytest-dsocr</title><h1>{}</h1><p>{}</p><p>{}</p>\n".format(*told)
    write_whole(folder / INDEX_NAME, page)


def head(identity: RunIdentity, status: str, ended: str | None = None) -> dict[str, Any]:
    """Return what stands at the beginning of the file."""
    return {"format": FORMAT, "status": status, **asdict(identity), "ended": ended}


def write_json(folder: Path, result: Mapping[str, Any], witness: int | None = None) -> Path:
    """Write ``dsocr.json`` into ``folder``, whole or not at all, and give the file.

    Args:
        folder: where to.
        result: JSON values.
        witness: a pipe that the content's digest is written to, a line.

    Raises:
        DsocrError: where the disk does not take it.
    """
    content = (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()
    write_whole(folder / JSON_NAME, content)
    if witness is not None:
        with suppress(OSError):  # closed by somebody: the reader misses the digest
            os.write(witness, f"{sha256(content)}\n".encode())
    return folder / JSON_NAME


def read_result(
    place: Path, run_id: str | None = None, *, unfinished: bool = False, digest: str | None = None
) -> dict[str, Any]:
    """Read the result of a run that was finished.

    Args:
        place: what was given as ``--dsocr-out``, or the file itself.
        run_id: of the run whose result is wanted; of any, if left out.
        unfinished: whether the result of a run that was not finished is given as well.
        digest: of the content of a finished result, as the run reported it; any, if left out.

    Raises:
        RefusedError: where the run was refused.
        ChangedError: where it is not what the run reported.
        DsocrError: where there is no result, or it is damaged, of another format, or unfinished.
    """
    path = place if place.suffix == ".json" else place / JSON_NAME
    content = HEADS.read_bytes(path)
    is_changed = digest not in (None, sha256(content))
    if digest and is_changed:
        raise ChangedError(f"{path} {NOT_WRITTEN}")
    result: Any = HEADS.decode(content, path)
    if run_id not in (None, result["id"]):
        raise ChangedError(f"{path} is of another run, {result['id']}, and not of {run_id}, which wrote none")
    if result["status"] == CHANGED and not unfinished:
        raise DsocrError(f"{path}: {result['verdict']}")
    if result["status"] == REFUSED and not unfinished:
        raise RefusedError(f"{path}: the run was refused: {result['verdict']}", result.get("ended_as", REFUSED))
    if result["status"] != FINISHED and not unfinished:
        raise DsocrError(f"{path}: the run of {result['started']} is {UNFINISHED}; see its output, and run it again")
    if result["status"] == FINISHED and is_changed:
        raise ChangedError(f"{path} {NOT_WRITTEN}")
    if result["status"] == FINISHED:
        from pytest_dsocr.report.schema import RESULTS

        RESULTS.convert(result, path)
    found: dict[str, Any] = result
    return found


def now() -> str:
    """Return the time as ``2026-11-22T17:58:59+00:00``."""
    return datetime.now(UTC).isoformat(timespec="seconds")
