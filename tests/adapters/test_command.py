"""``cli:`` on real processes: what they receive, what is taken for text, and the message for each misbehaviour."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.loading import close_subject, load_subject, open_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.adapters import reader
from tests.processes import await_ended

READER = shlex.join([sys.executable, reader.__file__])
ONCE = f"cli:{READER} {{page}} {{text}}"
KEPT = f"--keep {READER} --stay"


def read(spec: str, page: str = "fine", subject: Any = None) -> str:
    found = subject or load_subject(spec, Setup())
    asked: Any = {"prompt": DEEPSEEK_OCR.prompts["free"], "preset": DEEPSEEK_OCR.presets["tiny"], "max_new_tokens": 7}
    text: str = found.read(Path(page).with_suffix(".png"), **asked)
    return text


def refused(spec: str, page: str, kind: type[SubjectFaultError] = SubjectFaultError, subject: Any = None) -> str:
    with pytest.raises(kind) as caught:
        read(spec, page, subject)
    assert type(caught.value) is kind
    assert caught.value.stage == "read"
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
    return f"{caught.value}\n{caught.value.__cause__}"


def test_a_page_is_what_the_command_prints() -> None:
    subject = open_subject(ONCE, Setup(), isolated_s=9)  # which needs no isolation
    assert read(ONCE, subject=subject) == "fine|Free OCR.|<|ref|>té<|/ref|>\n"


def test_every_field_is_filled_in_and_no_shell_sees_it() -> None:
    fields = (
        "'{prompt};$HOME' {preset}-{base_size}-{image_size}-{crop} {max_new_tokens} {checkpoint} {device} '{\"a\": 1}'"
    )
    page, message = read(f"cli:--env=BANNER=a=b {READER} {{page}} {fields}").split("|", 1)
    assert page == "a=bfine"
    assert message.startswith('<image>\nFree OCR.;$HOME|tiny-512-512-false|7|mini|cpu|{"a": 1}|')


def test_the_newline_after_the_image_can_be_kept() -> None:
    assert read(f"cli:{READER} {{page}} {{text}}").startswith("fine|Free OCR.|")
    assert read(f"cli:{READER} {{page}} {{unstripped}}").startswith("fine|\nFree OCR.|")


def test_the_text_stands_between_marks() -> None:
    assert read(f"cli:--after='Free ' --before='|<|ref|>' {READER} {{page}} {{text}}") == "OCR."
    for marks, mark in (("--after===", "=="), ("--after='OCR.' --before=fine", "fine")):
        message = refused(f"cli:{marks} {READER} {{page}} {{text}}", "fine")
        assert f"the command printed no {mark!r}, a mark of where the text is; give the marks that it prints" in message


MISDEEDS = {
    "crash": "the command ended with status 3; make it end with status 0 where it has read the page; it said last: "
    r"Segmentation violation at 0x0\x1b[31m; it was: ",
    "killed": "the command was killed by SIGABRT; ",
    "huge": "the command printed more than 16 MiB; let it print the text of the page alone; ",
    "latin": "the command printed what is not UTF-8 (byte 3 of ",
}


def test_a_misdeed_is_a_fault_that_says_what_happened(tmp_path: Path) -> None:
    for page, message in MISDEEDS.items():
        text = refused(ONCE, page)
        assert text.startswith(message)
        assert f"reader.py {page}.png 'Free OCR.'\nloading for {page}" in text
    (tmp_path / "mine").write_bytes(b"\x7fELF no program")
    (tmp_path / "mine").chmod(0o755)
    assert "the command cannot be started (" in refused(f"cli:{tmp_path}/mine {{page}}", "fine")


def test_a_hang_ends_at_its_own_limit_and_at_the_runs(tmp_path: Path) -> None:
    message = refused(f"cli:--time-limit=0.2 {READER} {{page}}", "hang", SubjectHungError)
    assert message.startswith("the command took more than 0.2 s; if it was only slow, raise its time limit; ")
    (tmp_path / "hang.png").touch()
    with watching([]) as watch:
        watch.limit(0.2)
        checked = CheckedSubject(load_subject(ONCE, Setup()))
        with pytest.raises(SubjectHungError, match=r"did not return in read within 0\.2 s"):
            checked.read(make_case(tmp_path / "hang.png", "free", "tiny", family=DEEPSEEK_OCR))


def test_nothing_that_it_has_started_is_left() -> None:
    """A process that it leaves behind holds its pipes open, and is waited for by nobody."""
    await_ended(int(read(f"cli:{READER} {{page}}", "child").split("|")[-1]))


BAD = [
    ("cli:", "there is no command; give cli:COMMAND with {page} in it, or cli:FILE.toml"),
    ("cli:absent {page}", "there is no command 'absent'; install it, or give its path"),
    (f"cli:{READER}", "hands no page over; write {page} where the command takes the image's file"),
    (f"cli:{READER} {{page}} {{gguf}}", "there is no field {gguf}; the fields are {page}, {prompt}, {text}, "),
    (f"cli:--keep {READER} {{page}}", "there is no field {page}; the fields are {checkpoint}, {device}, "),
    (f"cli:--fast {READER}", "'--fast' is no option of cli:; in front of a command there may be --keep, "),
    (f"cli:--time-limit=0 {READER} {{page}}", " has a wrong time_limit: expected float > 0.0; "),
    ("cli:'open", "cannot be split into words (No closing quotation); close the quotes"),
    ("cli:absent.toml", "absent.toml cannot be read ("),
    ("cli:odd.toml", "odd.toml does not fit: object contains unknown field words; docs/adapters.md has every option"),
    ("cli:typed.toml", "typed.toml has a wrong keep: expected bool, got str; "),
]


def test_a_bad_name_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.toml").write_text("words = []")
    Path("typed.toml").write_text("command = 'a'\nkeep = 'yes'")
    for spec, message in BAD:
        with pytest.raises(DsocrError, match=re.escape(message)):
            load_subject(spec, Setup())


def test_a_file_holds_what_a_name_cannot(tmp_path: Path) -> None:
    file = tmp_path / "my_ocr.toml"
    words = [sys.executable, reader.__file__, "{page}", "<__media__>\n{text}"]
    file.write_text(f"command = {json.dumps(words)}\nbefore = '|<|ref|>'\ntime_limit = 60\n[env]\nBANNER = 'a '\n")
    assert read(f"cli:{file}") == "a fine|<__media__>\nFree OCR."


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[Any]:
    subject = load_subject(f"cli:{getattr(request, 'param', '')} {KEPT}", Setup())
    yield subject
    close_subject(subject)


def pid(text: str) -> str:
    return text.split("|")[1].split()[0]


def test_a_command_that_stays_is_asked_page_by_page(kept: Any) -> None:
    first, second = (read("", page, kept) for page in ("one", "two"))
    assert (first.split("|")[0], second.split("|")[0]) == ("one", "two")
    assert pid(first) == pid(second)
    assert "error: no such page; fix that; it said last: loading for two; " in refused("", "refuses", subject=kept)
    assert pid(read("", "three", kept)) == pid(first), "a page that is refused does not end it"
    close_subject(kept)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid(first)), 0)


@pytest.mark.parametrize(
    ("kept", "page", "kind", "message"),
    [
        ("", "crash", SubjectFaultError, "ended with status 3 and did not answer; another is started for the"),
        ("--time-limit=0.01", "hang", SubjectHungError, "took more than 0.01 s; "),
        ("", "broken", SubjectFaultError, "printed '{broken', which is no answer; print a line {\"id\": 2, "),
        ("", "late", SubjectFaultError, 'which is no answer; print a line {"id": 2, "text": "..."}; it said last: '),
    ],
    indirect=["kept"],
)
def test_a_misdeed_of_one_that_stays_costs_a_page(
    kept: Any, page: str, kind: type[SubjectFaultError], message: str
) -> None:
    before = pid(read("", "one", kept))
    assert message in refused("", page, kind, kept)
    assert pid(read("", "two", kept)) != before
