"""Words for counts, paths and text of unknown origin; and which errors are the machine's, by types and numbers."""

import errno
import os
import subprocess
from pathlib import Path

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError, MachineError, has_ended_cuda, is_of_machine, traced
from pytest_dsocr.base.files import unseal
from pytest_dsocr.base.words import (
    COLUMNS,
    MARGIN,
    PACKAGE,
    are,
    entry,
    in_shell,
    ordinal,
    plain,
    printable,
    relative_path,
)


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
    assert relative_path(str(PACKAGE / "golden" / "vendor")) == "golden/vendor"
    assert relative_path(str(tmp_path / "out" / "a.json")) == "out/a.json"
    assert [relative_path(one) for one in ("out", "/elsewhere/out", str(tmp_path.parent))] == [
        *("out", "/elsewhere/out", str(tmp_path.parent))
    ]
    with pytest.raises(ValueError, match="its end is missing") as raised:
        unseal(b"")
    assert 'File "base/files.py", line' in traced(raised.value)
    assert str(PACKAGE) not in traced(raised.value)


def test_long_text_goes_on_below_itself_up_to_a_limit() -> None:
    lines = list(entry("check", "word " * 100, 3))
    assert [line[:MARGIN].strip() for line in lines] == ["check", "", ""]
    assert all(len(line) <= COLUMNS for line in lines)
    assert lines[-1].endswith("...")
    assert list(entry("check", "")) == [f"{'check':<{MARGIN}}"]


def accelerator(code: int) -> torch.AcceleratorError:
    error = torch.AcceleratorError("CUDA error")
    vars(error)["error_code"] = code
    return error


@pytest.mark.parametrize(
    ("error", "of_machine"),
    [
        (MachineError("no weights"), True),
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (accelerator(46), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (DsocrError("No space left on device"), False),
        (RuntimeError("CUDA out of memory"), False),
        (accelerator(700), False),  # an illegal address is the kernel's own doing
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (None, False),
    ],
    ids=repr,
)
def test_only_types_and_numbers_tell(error: BaseException | None, of_machine: bool) -> None:
    assert is_of_machine(error) is of_machine


@pytest.mark.parametrize(
    ("error", "has_ended"),
    [
        (accelerator(710), True),
        (accelerator(700), True),
        (accelerator(2), False),  # too little memory
        (accelerator(999), False),
        (RuntimeError("CUDA error: device-side assert triggered\nCompile with ..."), True),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA error: invalid argument"), False),
        (RuntimeError("the context is destroyed"), False),  # of another library
        (ValueError("CUDA error: device-side assert triggered"), False),
        (None, False),
    ],
    ids=repr,
)
def test_errors_after_which_cuda_fails_for_good(error: BaseException | None, has_ended: bool) -> None:
    assert has_ended_cuda(error) is has_ended


def test_an_error_of_the_subjects_own_hides_no_end_of_cuda() -> None:
    own = ValueError("no token")
    own.__context__ = accelerator(710)  # it was raised in the handling of that one
    assert has_ended_cuda(own)
    assert not is_of_machine(own)


def test_an_error_is_the_machines_where_one_that_it_came_from_is() -> None:
    outer, middle = DsocrError("the subject's read raised"), RuntimeError("no tensor")
    outer.__cause__, middle.__cause__ = middle, MemoryError()
    assert is_of_machine(outer)
    middle.__cause__ = outer  # a ring ends
    assert not is_of_machine(outer)


def test_numbers_have_their_endings_and_verbs() -> None:
    assert [ordinal(one) for one in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1003)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th", "1,003rd")
    ]
    assert [are(one) for one in (0, 1, 2)] == ["are", "is", "are"]
    assert [are(one, "differ", "differs") for one in (1, 2)] == ["differs", "differ"]
