"""Files from outside, read within bounds: regular files alone, of bounded size and depth, checked by a schema."""

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
"""Of objects and arrays inside each other: nothing that is read here has more than ten."""
KEY = re.compile(r" - at `(?:key` in `)?\$(?P<key>.*)`$")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Ratio = Annotated[float, Meta(ge=0, le=1e300)]
Time = Annotated[float, Meta(ge=0, le=1e12)]
"""Milliseconds, seconds or days; neither NaN nor an infinity."""
Moment = Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")]
"""In UTC, as ISO 8601."""
Commit = Annotated[str, Meta(pattern=r"\A[\w.+-]*\Z", max_length=255)]
"""A version's name, which becomes a part of a file's name; empty where it is unknown."""
FileName = Annotated[str, Meta(pattern=r"\A[^/\\\x00]+\Z", max_length=255)]
"""Of a file in the same folder: a path to elsewhere is none."""
Fact = str | int | float | bool | None
T = TypeVar("T")
if TYPE_CHECKING:
    Identity = Mapping[str, Any]
else:
    Identity = Mapping[str, Mapping[str, Any] | Fact]
"""What ran where: names with values, or with names and values of their own."""


def toml(data: bytes) -> dict[str, Any]:
    """Parse TOML."""
    return tomllib.loads(data.decode())


def is_regular(path: Path) -> bool:
    """Return whether there is a regular file, which can be opened without waiting for anybody."""
    with suppress(OSError, ValueError):  # in a folder that is not ours, or with a zero byte in its name
        return path.is_file()
    return False


@dataclass(frozen=True)
class Format(Generic[T]):
    """What files of one kind hold, and what to do about one that does not.

    Args:
        schema: what msgspec converts the content to. Of a ``TypedDict`` the content itself is given, with whatever
            else it holds.
        advice: what to do; ends each message.
        error: what is raised.
        parse: from the file's bytes to builtin values; raises ``ValueError``.
    """

    schema: type[T]
    advice: str
    error: type[DsocrError] = DsocrError
    parse: Callable[[bytes], Any] = parse_json
    most_bytes: int = MOST_BYTES

    def read(self, path: str | PathLike[str]) -> T:
        """Read a file; raises as :meth:`decode`, and where it is missing, no regular file, unreadable or too large."""
        return self.decode(self.read_bytes(path), path)

    def decode(self, data: bytes, where: str | PathLike[str]) -> T:
        """Read a file's content.

        Raises:
            DsocrError: of the class ``error``, with ``where``, the key, what was expected, and what to do.
        """
        try:
            value = self.parse(data)
        except (ValueError, RecursionError) as error:
            raise self.fault(where, f"is damaged: {error}") from error
        if _is_deeper(value, MOST_DEPTH):
            raise self.fault(where, f"has more than {MOST_DEPTH} levels")
        return self.convert(value, where)

    def convert(self, value: Any, where: str | PathLike[str]) -> T:
        """Check builtin values; raises as :meth:`decode`."""
        try:
            found = msgspec.convert(value, self.schema, str_keys=True)
        except (msgspec.ValidationError, DsocrError, UnicodeEncodeError) as error:  # the last of half a character
            raise self.fault(where, _in_words(str(error))) from error
        return value if is_typeddict(self.schema) else found

    def read_bytes(self, path: str | PathLike[str]) -> bytes:
        """Read a regular file's bytes, and wait for nobody: a FIFO or a device is refused."""
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
        """Yield the lines of a text with their numbers, but for empty ones and those that begin with ``#``."""
        for number, line in enumerate(map(str.strip, self.read_text(path).splitlines()), 1):
            if line and not line.startswith("#"):
                yield number, line

    def fault(self, where: str | PathLike[str], why: str) -> DsocrError:
        """Make the error that names a file, what is wrong, and what to do."""
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
