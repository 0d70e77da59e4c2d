"""Words for counts, paths and text of unknown origin."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError, traced
from pytest_dsocr.foundation.files import unseal
from pytest_dsocr.foundation.words import COLUMNS, MARGIN, PACKAGE, entry, in_shell, near, plain, printable


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a page", "a page"),
        ("第一页 é", "第一页 é"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\u202egnp.", r"\u202egnp."),
        ("\udc80", r"\udc80"),
        ("  ::stop-commands::x", r"  \::stop-commands::x"),
        ("a ::add-mask::x ##[group]", r"a \::add-mask::x ##\[group]"),
        ("a.py::test_b ::", "a.py::test_b ::"),
    ],
)
def test_nothing_steers_a_terminal(text: str, escaped: str) -> None:
    assert plain(text) == escaped


def test_lines_and_tabs_can_be_kept() -> None:
    assert printable("a\nb\tc\rd\x1b[31m") == "a\nb\tc\\rd\\x1b[31m"
    assert str(DsocrError("a\n::stop-commands::x.png")) == "a\n\\::stop-commands::x.png"
    assert len(str(DsocrError("x" * 200_000))) < 20_000
    assert not any(line.lstrip().startswith("::") for line in entry("", "x" * 104 + "::stop-commands::x"))


def test_a_shell_takes_words_as_they_were() -> None:
    words = ["a b", "it's", "\x1b[31m'\\", "\n", "第一页", "\udcff"]
    message = in_shell(words)
    assert message.isprintable()
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {message}"], capture_output=True, check=True).stdout
    assert printed.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_paths_inside_this_package_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(str(PACKAGE / "golden" / "vendor")) == "golden/vendor"
    assert near(str(tmp_path / "out" / "a.json")) == "out/a.json"
    assert [near(one) for one in ("out", "/elsewhere/out", str(tmp_path.parent))] == [
        *("out", "/elsewhere/out", str(tmp_path.parent))
    ]
    with pytest.raises(ValueError, match="its end is missing") as raised:
        unseal(b"")
    assert 'File "foundation/files.py", line' in traced(raised.value)
    assert str(PACKAGE) not in traced(raised.value)


def test_long_text_goes_on_below_itself_up_to_a_limit() -> None:
    lines = list(entry("check", "word " * 100, 3))
    assert [line[:MARGIN].strip() for line in lines] == ["check", "", ""]
    assert all(len(line) <= COLUMNS for line in lines)
    assert lines[-1].endswith("...")
    assert list(entry("check", "")) == [f"{'check':<{MARGIN}}"]
