"""Python literals in the model's text: numbers, strings, lists, tuples and dicts, read without ``eval``.

The vendor hands such text to ``eval``. This reader gives the same value where the text is a plain literal and refuses
everything else: names, calls, arithmetic, sets, strings with prefixes or numeric escapes. It looks at each character
once, keeps its own stack instead of recursing, and so cannot be made slow, or made to crash, by what a page prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = "int | float | str | list[Value] | tuple[Value, ...] | dict[Value, Value] | None"

MAX_NESTING = 200  # open brackets at which Python's own tokenizer gives up

_BLANK = " \t\f\r\n"
_DIGITS = r"[0-9]++(?:_[0-9]++)*+"
# Possessive throughout: a token is taken in one pass and keeps no memory for a second try.
_TOKEN = re.compile(
    rf"""
    (?P<blank>[{_BLANK}]++)
  | (?P<integer>0[xX](?:_?[0-9a-fA-F]++)++ | 0[oO](?:_?[0-7]++)++ | 0[bB](?:_?[01]++)++ | {_DIGITS}(?![.eE]))
  | (?P<real>(?:{_DIGITS}\.?(?:{_DIGITS})?+ | \.{_DIGITS})(?:[eE][+-]?{_DIGITS})?+)
  | (?P<string>'(?:[^'\\\n\r\0]++|\\[^\n\r\0xuUN0-7])*+' | "(?:[^"\\\n\r\0]++|\\[^\n\r\0xuUN0-7])*+")
  | (?P<constant>True|False|None)
  | (?P<opening>[\[({{])
  | (?P<closing>[\])}}])
  | (?P<separator>[,:])
  | (?P<sign>[+-])
    """,
    re.VERBOSE,
)
_CONSTANTS = {"True": True, "False": False, "None": None}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_ESCAPE = re.compile(r"\\([\\'\"abfnrtv])")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def read_literal(text: str) -> Value:
    """Read ``text`` as one Python literal.

    Raises:
        ValueError: where ``text`` is anything else; the message is the reason in a few words.
    """
    groups = [_Group("")]
    for kind, token in _tokens(_trimmed(text)):
        if kind == "blank":
            if len(groups) == 1 and ("\n" in token or "\r" in token):
                raise ValueError("a line break outside the brackets")
        elif kind == "opening":
            if len(groups) > MAX_NESTING:
                raise ValueError(f"more than {MAX_NESTING} open brackets")
            groups.append(_Group(token))
        elif kind == "closing":
            closed = groups.pop()
            if _CLOSING.get(closed.bracket) != token:
                raise ValueError(f"{token} closes nothing")
            groups[-1].add(closed.value())
        elif kind == "separator":
            groups[-1].separate(token)
        elif kind == "sign":
            groups[-1].sign(token)
        elif kind in ("integer", "real"):
            groups[-1].add_number(int(token, 0) if kind == "integer" else float(token))
        else:
            groups[-1].add(_CONSTANTS[token] if kind == "constant" else _unescaped(token[1:-1]))
    if len(groups) > 1:
        raise ValueError(f"{groups[-1].bracket} is not closed")
    return groups[0].value()


@dataclass
class _Group:
    """A bracket, or the text as a whole, and what has been read in it so far."""

    bracket: str
    items: list[Value] = field(default_factory=list)
    separators: int = 0
    factor: int = 0  # of the number to come: 1 or -1 after a sign, 0 where there was none

    @property
    def expects_value(self) -> bool:
        return len(self.items) == self.separators

    def add(self, value: Value) -> None:
        self._require_value_allowed()
        self.items.append(value)

    def add_number(self, number: int | float) -> None:
        factor, self.factor = self.factor or 1, 0
        self.add(factor * number)

    def sign(self, token: str) -> None:
        if not self.expects_value:
            raise ValueError("arithmetic")
        self.factor = (self.factor or 1) * (-1 if token == "-" else 1)

    def separate(self, token: str) -> None:
        wanted = ":" if self.bracket == "{" and self.separators % 2 == 0 else ","
        if self.expects_value or token != wanted:
            raise ValueError(f"{token} in the wrong place")
        self.separators += 1

    def value(self) -> Value:
        """Give what the bracket stands for, now that it is closed."""
        if self.factor:
            raise ValueError("a sign without a number")
        if self.bracket == "[":
            return self.items
        if self.bracket == "{":
            return self._dict()
        if len(self.items) == 1 and not self.separators:
            return self.items[0]
        if not self.items and not self.bracket:
            raise ValueError("nothing in it")
        return tuple(self.items)

    def _dict(self) -> dict[Value, Value]:
        try:
            return dict(zip(self.items[::2], self.items[1::2], strict=True))
        except (TypeError, ValueError) as error:
            raise ValueError("no dict: a key without a value, or one that cannot be a key") from error

    def _require_value_allowed(self) -> None:
        if not self.expects_value:
            raise ValueError("a comma is missing")
        if self.factor:
            raise ValueError("a sign without a number")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[position]!r} is no part of a literal")
        yield match.lastgroup, match.group()
        position = match.end()


def _trimmed(text: str) -> str:
    """Drop the blanks around ``text``, except an indentation on a line of its own, which Python refuses."""
    text = text.lstrip(" \t").rstrip(_BLANK)
    body = text.lstrip(_BLANK)
    if len(body) < len(text) and text[-len(body) - 1] in " \t":
        raise ValueError("an indented line outside the brackets")
    return body


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)
