"""``dsocr.json``, written from the start of a run: an unfinished or older run is never mistaken for a pass.

Its status is *running* before pytest has loaded a test, and *finished* when everything else is written. Read it only
through :func:`read_result`. The exit status distinguishes a wrong model from a broken machine. ``docs/running.md``
lists the statuses of every command.
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
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, to_builtins

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import sha256, write_whole
from pytest_dsocr.base.process import commit_here
from pytest_dsocr.base.reading import Commit, Format, Moment


class Ending(StrEnum):
    """Ending of a run or a test; ``ended_as`` in ``dsocr.json``."""

    PASSES = "passes"
    WRONG = "wrong"
    """The subject is wrong or raised, or a test failed for a reason that no other ending covers."""
    INFRASTRUCTURE = "infrastructure"
    """Nothing is wrong, but the machine could not compare everything."""
    SLOWER = "slower"
    """Everything was compared and nothing is wrong, but times or counts are worse than the baseline's."""
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal error"
    REFUSED = "refused"
    NO_TESTS = "no tests"
    CHANGED = "changed"
    """Something changed the result that pytest had written; ``dsocr compare`` replaces it by this ending."""


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
"""Exit statuses of ``dsocr compare``. pytest itself defines 2 to 5; 128 + N is signal N."""
GRAVEST_FIRST = (Ending.WRONG, Ending.INFRASTRUCTURE, Ending.SLOWER)
"""A run that could not compare everything is never called slower, as CI may accept slower runs."""


def gravest(found: Iterable[Ending]) -> Ending:
    """Return the gravest ending of failing tests; WRONG if there is none."""
    endings = {*found}
    return next((one for one in GRAVEST_FIRST if one in endings), Ending.WRONG)


FORMAT = 2
JSON_NAME, INDEX_NAME, SUMMARY_NAME, PAGES = "dsocr.json", "index.html", "summary.md", "pages"
RUNNING, REFUSED, FINISHED, CHANGED = "running", "refused", "finished", "changed"
RUN_ID = "DSOCR_RUN_ID"
"""Environment variable with the id that the caller gave to the run."""
WITNESS = "DSOCR_WITNESS"
"""Environment variable with the pipe to the caller, for the digest of each result; removed when pytest starts."""
UNFINISHED = "not finished: the run goes on, was refused, or died"
NOT_WRITTEN = (
    "is not what pytest wrote: something in its process, such as an atexit handler of the subject, or one that "
    "the subject started changed it; remove that, or run the subject in its own process with --isolate"
)


class ResultHead(Struct, kw_only=True, frozen=True):
    """First fields of every result, finished or not."""

    format: Literal[2]
    status: Literal["running", "refused", "finished", "changed"]
    id: str
    started: Moment
    commit: Commit | None
    command: str
    ended: str | None


class Unfinished(ResultHead, kw_only=True, frozen=True):
    """Result of a run without tests; every finished result has these fields as well."""

    verdict: str
    passes: bool = False
    ended_as: Ending | UnsetType = UNSET
    """Left out while the run goes on."""


HEADS = Format(Unfinished, "name the folder of a run, or run the suites again")
JSON = Format(dict[str, Any], HEADS.advice)


class RefusedError(DsocrError):
    """The run was refused before it began."""

    def __init__(self, message: str, ended_as: Ending) -> None:
        super().__init__(message)
        self.ended_as = ended_as


class ChangedError(DsocrError):
    """The result is not the one that pytest wrote."""


@dataclass(frozen=True)
class RunIdentity:
    """Identity of a run."""

    id: str
    started: str
    """Time in UTC, in ISO 8601."""
    commit: str | None
    """Commit of the folder that pytest was called in; see :func:`pytest_dsocr.base.process.commit_here`."""
    command: str

    @classmethod
    def now(cls, command: str) -> RunIdentity:
        """Return the identity of a run that starts now."""
        return cls(os.environ.get(RUN_ID) or uuid.uuid4().hex, now(), commit_here(), command)


def take_witness() -> int | None:
    """Return the pipe for digests, if there is one, and hide it from other code and from child processes.

    The subject's code in this process must be trusted all the same: it could search for the pipe.
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
    """Replace any result in ``folder`` by that of a run that has started; create the folder.

    Raises:
        DsocrError: if nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PAGES).is_symlink():  # below which folders are made anew
            (folder / PAGES).unlink()
    except OSError as error:
        raise DsocrError(f"{folder} cannot be made ({error.strerror}); give another folder") from error
    _mark(folder, Unfinished(**head(identity, RUNNING), verdict=UNFINISHED))


def mark_ended(folder: Path, identity: RunIdentity, why: str, ended_as: Ending, status: str = REFUSED) -> Unfinished:
    """Replace any result in ``folder`` by one sentence, why there is none; return the new content.

    Raises:
        DsocrError: if nothing can be written there.
    """
    result = Unfinished(**head(identity, status), verdict=why, ended_as=ended_as)
    _mark(folder, result)
    return result


def _mark(folder: Path, result: Unfinished) -> None:
    """Write a result without tests and its page, and remove the summary of an earlier run."""
    write_json(folder, result)
    (folder / SUMMARY_NAME).unlink(missing_ok=True)
    told = [html.escape(one) for one in (result.verdict, result.command, f"since {result.started}")]
    page = "<!DOCTYPE html><title>pytest-dsocr</title><h1>{}</h1><p>{}</p><p>{}</p>\n".format(*told)
    write_whole(folder / INDEX_NAME, page)


def head(identity: RunIdentity, status: str, ended: str | None = None) -> dict[str, Any]:
    """Return the first fields of the file."""
    return {"format": FORMAT, "status": status, **asdict(identity), "ended": ended}


def write_json(folder: Path, result: ResultHead | Mapping[str, Any], witness: int | None = None) -> Path:
    """Write ``dsocr.json`` into ``folder``, completely or not at all, and return its path.

    Args:
        witness: pipe that receives the digest of the content, as one line.

    Raises:
        DsocrError: if it cannot be written.
    """
    content = (json.dumps(to_builtins(result), indent=1, allow_nan=False) + "\n").encode()
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
        place: folder given as ``--dsocr-out``, or the file itself.
        run_id: id of the expected run; any run if left out.
        unfinished: whether to return the result of an unfinished run as well.
        digest: digest that the run reported for its content; any content if left out.

    Raises:
        RefusedError: if the run was refused.
        ChangedError: if the content is not the one that the run reported.
        DsocrError: if there is no result, or it is damaged, has another format, or is unfinished.
    """
    path = place if place.suffix == ".json" else place / JSON_NAME
    content = HEADS.read_bytes(path)
    is_changed = digest not in (None, sha256(content))
    if digest and is_changed:
        raise ChangedError(f"{path} {NOT_WRITTEN}")
    result = JSON.decode(content, path)
    head = HEADS.convert(result, path)
    if run_id not in (None, head.id):
        raise ChangedError(f"{path} is the result of run {head.id}; run {run_id} wrote none")
    if head.status == CHANGED and not unfinished:
        raise DsocrError(f"{path}: {head.verdict}")
    if head.status == REFUSED and not unfinished:
        raise RefusedError(f"{path}: the run was refused: {head.verdict}", head.ended_as or Ending.REFUSED)
    if head.status != FINISHED and not unfinished:
        raise DsocrError(f"{path}: the run of {head.started} is {UNFINISHED}; see its output, and run it again")
    if head.status == FINISHED and is_changed:
        raise ChangedError(f"{path} {NOT_WRITTEN}")
    if head.status == FINISHED:
        from pytest_dsocr.report.document import finished

        finished(result, path)
    return result


def now() -> str:
    """Return the time as ``2026-11-22T17:58:59+00:00``."""
    return datetime.now(UTC).isoformat(timespec="seconds")
