"""Files that are written whole, JSON that shows whether it is complete, locks, and pages made of templates."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pytest_dsocr.base.errors import DsocrError

if TYPE_CHECKING:
    from jinja2 import Environment


LINE_CHARACTERS = 240
"""Longest line of JSON. A seam's summary fits."""
MOST_DIGITS = 308
"""Most digits of an integer in JSON. A longer one does not fit a float and raises OverflowError in arithmetic."""

WITHOUT_LINKS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_SEAL, _END = b',\n "sha256": "', b'"\n}\n'


def seal(content: Mapping[str, Any]) -> bytes:
    """Lay out a JSON object with the SHA-256 of all the bytes in front as its last value; the same bytes each time.

    Floats keep every bit; those that JSON has no word for are Python's ``NaN``, ``Infinity`` and ``-Infinity``.
    """
    body = _open_object(content, 0).encode()
    return body + _SEAL + sha256(body).encode() + _END


def unseal(data: bytes) -> dict[str, Any]:
    """Read what :func:`seal` made; raise ``ValueError`` with the reason if a byte is missing or changed."""
    if not data.endswith(_END):
        raise ValueError("its end is missing")
    body, _, stated = data.rpartition(_SEAL)
    if stated != sha256(body).encode() + _END:
        raise ValueError("its content does not have the SHA-256 that stands at its end")
    content: dict[str, Any] = parse_json(data)
    return content


def parse_json(data: str | bytes) -> Any:
    """Parse JSON; raise ``ValueError`` if it is invalid or has an integer that is too long."""
    return json.loads(data, parse_int=_whole_number)


def _whole_number(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} characters, and {MOST_DIGITS} digits are the most")
    return int(digits)


def sha256(data: bytes) -> str:
    """Hash ``data``."""
    return hashlib.sha256(data).hexdigest()


def write_whole(path: Path, data: bytes | str, *, shared: bool = False) -> Path:
    """Write a file that appears whole or not at all, and return its path once it is on the disk.

    The file is always new: a link with its name is replaced, not followed. Only one process may write it at a time. If
    the folder is ``shared``, it is made if needed, and several processes may write.

    Raises:
        DsocrError: if it cannot be written.
    """
    partial = path.with_name(f"{path.name}{f'.{uuid.uuid4().hex}' if shared else ''}.partial")
    try:
        if shared:
            path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            file.write(data.encode("utf-8", "replace") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise DsocrError(f"{path} cannot be written ({error.strerror}); make room, or give another folder") from error
    return path


def recreate_dir(folder: Path) -> Path:
    """Make an empty folder. Anything with its name is removed first, and a link is not followed."""
    try:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    except OSError as error:
        raise DsocrError(f"{folder} cannot be written ({error.strerror}); give a folder that can") from error
    return folder


def sync_folder(folder: Path) -> None:
    """Write a folder's list of files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _layout(value: Any, indent: int) -> str:
    """Lay out a value on one line if it fits; otherwise an object one item a line, and an array in full lines."""
    line = json.dumps(value, ensure_ascii=False)
    if indent + len(line) <= LINE_CHARACTERS or not isinstance(value, Mapping | list | tuple):
        return line
    margin = " " * indent
    if isinstance(value, Mapping):
        return f"{_open_object(value, indent)}\n{margin}}}"
    rows: list[str] = []
    for item in (_layout(item, indent + 1) for item in value):
        if rows and indent + len(rows[-1]) + len(item) + 2 <= LINE_CHARACTERS:
            rows[-1] += f", {item}"
        else:
            rows.append(item)
    return "[\n" + ",\n".join(f"{margin} {row}" for row in rows) + f"\n{margin}]"


def _open_object(items: Mapping[str, Any], indent: int) -> str:
    margin = " " * (indent + 1)
    rows = (
        f"{margin}{json.dumps(key, ensure_ascii=False)}: {_layout(item, indent + 1)}" for key, item in items.items()
    )
    return "{\n" + ",\n".join(rows)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that dies with this process, however it dies.

    Raises:
        DsocrError: if another process holds it, or the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path)
    except OSError as error:
        raise DsocrError(
            f"{path} cannot be locked ({error.strerror or error}); give a folder that can be written"
        ) from error
    with lock:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}")
        lock.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _acquire(path: Path) -> IO[str]:
    import fcntl  # which Windows lacks, where a run is refused in words

    while True:
        lock = os.fdopen(os.open(path, WITHOUT_LINKS, 0o666), "a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            with lock:
                holder = lock.read() or "another process"
            raise DsocrError(f"{holder} is at work on {path.parent}; wait until it is done, or end it") from None
        if os.fstat(lock.fileno()).st_nlink:
            return lock
        lock.close()  # the holder deleted it between our opening and our locking


def templates(*folders: Path) -> Environment:
    """Return the templates in some folders. A variable without a value is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
