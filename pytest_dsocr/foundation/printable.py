"""Text of unknown origin made fit for a terminal: nothing in it can steer one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

COMMANDS = re.compile(r"(?<!\S)(?=::[\w-]+[^\n]*::)|(?<=##)(?=\[)")
"""Where a command of a CI's begins, as GitHub's takes it from the beginning of a line, and older ones from anywhere."""


class Command(str):
    """A line that a CI is meant to take for a command, made harmless in its parts by whoever made it."""


def plain(text: str) -> str:
    """Give ``text`` on one line, with escapes for whatever would steer a terminal or a CI."""
    return harmless("".join(c if c.isprintable() else _escaped(c) for c in text))


def printable(text: str) -> str:
    """Give ``text`` as :func:`plain` does, but in its lines and with its tabs."""
    return harmless("".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text))


def harmless(text: str) -> str:
    """Put a backslash before whatever a CI that shows ``text`` would take for a command."""
    return COMMANDS.sub(r"\\", text)


def in_shell(words: Iterable[str]) -> str:
    """Give words as a shell takes them; one that would steer a terminal as bash, ksh and zsh unescape it."""
    return " ".join(shlex.quote(word) if word.isprintable() else _quoted(word) for word in words)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _quoted(word: str) -> str:
    inside = "".join(f"\\{c}" if c in "\\'" else c if c.isprintable() else _for_shell(c) for c in word)
    return f"$'{inside}'"


def _for_shell(character: str) -> str:
    """Give the bytes of a character of a file's name, which need not be valid text."""
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
