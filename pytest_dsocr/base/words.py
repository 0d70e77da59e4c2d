"""Words for a terminal's line: counts, lists and paths, with text of unknown origin made harmless.

pytest loads this in every run, so functions import what few runs need.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

COMMANDS = re.compile(r"(?<!\S)(?=::[\w-]+[^\n]*::)|(?<=##)(?=\[)")
"""Positions where a CI would read a command: ``::name ...::`` after white space, or ``##[``."""


def plain(text: str) -> str:
    """Return ``text`` on one line, with everything escaped that a terminal or a CI would interpret."""
    return harmless("".join(c if c.isprintable() else _escaped(c) for c in text))


def printable(text: str) -> str:
    """Return ``text`` escaped as by :func:`plain`, but keep line breaks and tabs."""
    return harmless("".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text))


def harmless(text: str) -> str:
    """Put a backslash before each part of ``text`` that a CI would run as a command."""
    return COMMANDS.sub(r"\\", text)


def in_shell(words: Iterable[str]) -> str:
    """Return words quoted for a shell. A word with control characters is quoted for bash, ksh and zsh."""
    return " ".join(shlex.quote(word) if word.isprintable() else _quoted(word) for word in words)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _quoted(word: str) -> str:
    inside = "".join(f"\\{c}" if c in "\\'" else c if c.isprintable() else _for_shell(c) for c in word)
    return f"$'{inside}'"


def _for_shell(character: str) -> str:
    """Return the escaped bytes of a character. File names need not be valid text."""
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


COLUMNS, MARGIN = 120, 16
HASH_CHARACTERS = 12
PREFIXES = " kMGTP"
PACKAGE = Path(__file__).parents[1]


def fit(text: str, columns: int = COLUMNS) -> str:
    """Return ``text`` on one line of at most ``columns``."""
    shown = plain(text)
    return shown if len(shown) <= columns else shown[: columns - 3] + "..."


def entry(what: str, text: str, most_lines: int = 4) -> Iterator[str]:
    """Yield ``text`` in lines with the label ``what`` before the first. ``most_lines`` limits them."""
    from textwrap import wrap

    lines = wrap(plain(text), COLUMNS - MARGIN, break_on_hyphens=False, max_lines=most_lines, placeholder="...")
    for k, line in enumerate(lines or [""]):
        yield f"{'' if k else what:<{MARGIN}}{harmless(line)}"  # a long word may be cut before a command


def relative_path(path: str) -> str:
    """Return ``path`` relative to the current folder or to this package, if it is inside."""
    places = (place for place in (Path.cwd(), PACKAGE) if Path(path).is_relative_to(place))
    return next((str(Path(path).relative_to(place)) for place in places), path)


def count(number: int, noun: str) -> str:
    """Return ``1 case`` and ``2 cases``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def are(number: int, verb: str = "are", of_one: str = "is") -> str:
    """Return the verb of a number of things."""
    return of_one if number == 1 else verb


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` and ``11th``."""
    is_teen = number // 10 % 10 == 1
    return f"{number:,}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def listed(names: Sequence[str], shown: int = 6) -> str:
    """Return the first ``names`` in a row, and the number of the others."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def joined(parts: Sequence[str]) -> str:
    """Join words by commas, the last one by *and*."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return the question "did you mean ...?" with the most similar valid word, or an empty text."""
    from difflib import get_close_matches

    found = get_close_matches(word, [*valid], 1)
    return f"; did you mean {found[0]}?" if found else ""


def shown(value: object, width: int = 60) -> str:
    """Return a value as text, shortened to ``width``."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def quoted(text: str, width: int = 60) -> str:
    """Return a text in quotes on one line, cut to a width."""
    return f"'{shown(text, width)}'"


def aligned(rows: Sequence[Sequence[str]], left: Collection[str]) -> Iterator[str]:
    """Yield rows as a table with the narrowest columns that fit. The first row is the heading.

    Columns are aligned to the right, except those that ``left`` names.
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(rows[0], row, widths, strict=True)
        )
        yield fit("  ".join(cells).rstrip())


def short(commit: str) -> str:
    """Return a commit's hash with 12 digits, and keep its ``-dirty``."""
    name, hyphen, changed = commit.partition("-")
    return f"{name[:HASH_CHARACTERS]}{hyphen}{changed}"


def si(value: float) -> str:
    """Format a number with three figures and a prefix, ready for a unit: ``4.53 T``, ``61.4 k``, ``7 ``."""
    prefixes = [*PREFIXES]
    while abs(value) >= 999.5 and len(prefixes) > 1:
        value /= 1e3
        prefixes.pop(0)
    return f"{value:.3g} {prefixes[0].strip()}"
