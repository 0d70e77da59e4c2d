"""Safe reading of files from others: regular files only, with limits on size and depth, checked against a schema."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, is_typeddict

import msgspec
from msgspec import Meta

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import parse_json
from pytest_dsocr.base.words import plain

MOST_BYTES = 256 * 2**20
MOST_DEPTH = 64
"""Deepest nesting of objects and arrays. No file of this project has more than ten levels."""
KEY = re.compile(r" - at `(?:key` in `)?\$(?P<key>.*)`$")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Ratio = Annotated[float, Meta(ge=0, le=1e300)]
Time = Annotated[float, Meta(ge=0, le=1e12)]
"""Milliseconds, seconds or days; neither NaN nor an infinity."""
Moment = Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")]
"""Time in UTC, in ISO 8601."""
Commit = Annotated[str, Meta(pattern=r"\A[\w.+-]*\Z", max_length=255)]
"""Name of a version, used in file names; empty if unknown."""
FileName = Annotated[str, Meta(pattern=r"\A[^/\\\x00]+\Z", max_length=255)]
"""Name of a file in the same folder, without a path."""
Fact = str | int | float | bool | None
T = TypeVar("T")
if TYPE_CHECKING:
    Identity = Mapping[str, Any]
else:
    Identity = Mapping[str, Mapping[str, Any] | Fact]
"""Identity of a measurement: names with values, or with an inner table of names and values."""


def toml(data: bytes) -> dict[str, Any]:
    """Parse TOML."""
    return tomllib.loads(data.decode())


def is_regular(path: Path) -> bool:
    """Return whether the path is a regular file, so that opening it cannot block."""
    with suppress(OSError, ValueError):  # in a folder that is not ours, or with a zero byte in its name
        return path.is_file()
    return False


@dataclass(frozen=True)
class Format(Generic[T]):
    """Format of one kind of file, with the advice for a file that does not fit it.

    Args:
        schema: type to which msgspec converts the content. For a ``TypedDict``, the content is returned unchanged, with
            any additional keys.
        advice: what the user can do; the end of each message.
        error: class of the errors.
        parse: converts the file's bytes to builtin values, or raises ``ValueError``.
    """

    schema: type[T]
    advice: str
    error: type[DsocrError] = DsocrError
    parse: Callable[[bytes], Any] = parse_json
    most_bytes: int = MOST_BYTES

    def read(self, path: str | PathLike[str]) -> T:
        """Read a file. Raise as :meth:`decode` does, and if it is missing, irregular, unreadable or too large."""
        return self.decode(self.read_bytes(path), path)

    def decode(self, data: bytes, where: str | PathLike[str]) -> T:
        """Read a file's content.

        Raises:
            DsocrError: an ``error`` that names ``where``, the key, the expected type and the advice.
        """
        try:
            value = self.parse(data)
        except (ValueError, RecursionError) as error:
            raise self.fault(where, f"is damaged: {error}") from error
        if _is_deeper(value, MOST_DEPTH):
            raise self.fault(where, f"has more than {MOST_DEPTH} levels")
        return self.convert(value, where)

    def convert(self, value: Any, where: str | PathLike[str]) -> T:
        """Check builtin values. Raise as :meth:`decode` does."""
        try:
            found = msgspec.convert(value, self.schema, str_keys=True)
        except (msgspec.ValidationError, DsocrError, UnicodeEncodeError) as error:  # the last of half a character
            raise self.fault(where, _in_words(str(error))) from error
        return value if is_typeddict(self.schema) else found

    def read_bytes(self, path: str | PathLike[str]) -> bytes:
        """Read a regular file's bytes. Refuse a FIFO or a device, which could block."""
        try:
            status = Path(path).stat()
            if not stat.S_ISREG(status.st_mode):
                raise self.fault(path, "is not a regular file")
            if status.st_size > self.most_bytes:
                raise self.fault(path, f"has {status.st_size} bytes, and {self.most_bytes} are allowed")
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
                return file.read(status.st_size + 1)  # some of /proc say 0, and only reading tells
        except (OSError, ValueError) as error:  # a zero byte in its name
            raise self.fault(path, f"cannot be read ({getattr(error, 'strerror', None) or error})") from error

    def read_text(self, path: str | PathLike[str]) -> str:
        """Read a text in UTF-8."""
        try:
            return self.read_bytes(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.fault(path, f"is not text in UTF-8 ({error})") from error

    def read_lines(self, path: str | PathLike[str]) -> Iterator[tuple[int, str]]:
        """Yield numbered lines of a text, without empty lines and comments (``#``)."""
        for number, line in enumerate(map(str.strip, self.read_text(path).splitlines()), 1):
            if line and not line.startswith("#"):
                yield number, line

    def fault(self, where: str | PathLike[str], why: str) -> DsocrError:
        """Return an error that names a file, its fault and the advice."""
        return self.error(f"{plain(os.fspath(where))} {why}; {self.advice}")


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether containers are nested deeper than ``levels``; without recursion."""
    level = [value]
    while level and levels >= 0:
        rows = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [inner for row in rows for inner in row if isinstance(inner, dict | list)]
        levels -= 1
    return bool(level)


def _in_words(said: str) -> str:
    """Turn msgspec's message into ``holds KEY: expected ...``."""
    found = KEY.search(said)
    key = found["key"].removeprefix(".") if found else ""
    why = said[: found.start()] if found else said
    why = why.replace("`", "")
    return f"has a wrong {key}: {why[:1].lower()}{why[1:]}" if key else f"does not fit: {why[:1].lower()}{why[1:]}"
