from __future__ import annotations

import ast
import re
from itertools import product

import pytest

from pytest_dsocr.contract.literal import MAX_NESTING, read_literal

READABLE = [
    "[[94, 60, 905, 101]]",
    "[[1,2,3,4],[5,6,7,8]]",
    "[1, 2], (3, 4),",
    "((1, 2), [3, [4]])",
    "(1)",
    "((1,))",
    "()",
    "[]",
    " \t[1]",
    "\n\n[1]",
    " \r\n[1]\n\n",
    "\f[1]\f",
    "[1,\n 2,\r3,\r\n\t4\f]",
    "[0x1F, 0X_1f, 0b10, 0B1_0, 0o17, 1_000, 00, 0_0]",
    "[.5, 5., 1.5, 1e3, 1E-3, 1.e+3, .5e1_0, 1_0.0_1, 007.5, 09e1, 1e400]",
    "[-5, +5, - 5, -0.0, -0]",
    "True",
    "[None, False]",
    "['a', \"b\", 'it\\'s', \"\\\\ \\n \\t\"]",
    "{'Line': {'line': ['(1, 2) -- (3, 4)'], 'n': 1}, 2: (),}",
    "{}",
    "1" * 4300,
]
UNREADABLE = [
    "",
    " \n",
    "\n [1]",
    "[1]\n[2]",
    "1,\n2",
    "1,\r2",
    "[1",
    "1]",
    "[1)",
    "[,]",
    "[1,,2]",
    "[1 2]",
    "[1, 2",
    ",1",
    "-",
    "[-]",
    "-[1]",
    "-'a'",
    "-None",
    "1 - 2",
    "[2*3]",
    "nan",
    "[inf]",
    "True1",
    "Nonesuch",
    "01",
    "1__0",
    "1_",
    "0x",
    "0b2",
    "1e",
    "1.2.3",
    "1j",
    "１",
    "[1]\0",
    "'a",
    "'a\nb'",
    r"'\x41'",
    r"'\u0041'",
    r"'\101'",
    "b'a'",
    "f'{1}'",
    "{1: }",
    "{1: 2, 3}",
    "{1, 2}",
    "{[]: 1}",
    "[1: 2]",
    "{1; 2}",
    "# only a comment",
    "1" * 4301,
    "__import__('os').system('touch pwned')",
    "[x for x in (1, 2)]",
    "lambda: 0",
]


@pytest.mark.parametrize("text", READABLE)
def test_a_literal_has_the_value_python_gives_it(text: str) -> None:
    assert repr(read_literal(text)) == repr(ast.literal_eval(text.lstrip(" \t")))


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_literal_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_literal(text)


def test_signs_add_up_as_python_adds_them() -> None:
    # Python's evaluation allows several, its literal_eval only one.
    assert read_literal("[--5, -+-+5, +-5]") == [5, 5, -5]


def test_an_escape_that_python_only_warns_about_stays() -> None:
    assert read_literal(r"'\square ABC'") == r"\square ABC"


@pytest.mark.parametrize("bracket", ["[]", "()"])
def test_nesting_is_refused_where_python_refuses_it(bracket: str) -> None:
    def nested(depth: int) -> str:
        return bracket[0] * depth + "1" + bracket[1] * depth

    assert read_literal(nested(MAX_NESTING)) is not None
    with pytest.raises(ValueError, match="open brackets"):
        read_literal(nested(MAX_NESTING + 1))
    with pytest.raises(SyntaxError):
        ast.literal_eval(nested(MAX_NESTING + 1))


@pytest.mark.parametrize(
    ("alphabet", "length"), [("[](),1", 5), ("01_.", 6), ("1xe+-", 5), ("{}:,1", 5), ("[1,\n\f", 5)]
)
def test_every_short_text_reads_as_python_reads_it(alphabet: str, length: int) -> None:
    for text in map("".join, product(alphabet, repeat=length)):
        python, ours = _python_value(text), _our_value(text)
        assert ours == python or _is_known_exception(text, python), text


def _python_value(text: str) -> str | None:
    try:
        return repr(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        return None


def _our_value(text: str) -> str | None:
    try:
        return repr(read_literal(text))
    except ValueError:
        return None


def _is_known_exception(text: str, python: str | None) -> bool:
    """Several signs are read as ``eval`` reads them; sets, Ellipsis and ``-(1)`` are not read at all."""
    if python is None:
        return any(pair in text for pair in ("--", "++", "+-", "-+"))
    return bool(re.search(r"\{1+[,}]|Ellipsis", python)) or "-(" in text
