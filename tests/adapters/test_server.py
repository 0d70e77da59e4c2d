"""``http:`` against a real server: its requests, the handshake's findings, and the message for each misbehaviour."""

import json
import re
import socket
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.adapters.chat import MOST_SILENT, Chat
from pytest_dsocr.adapters.handshake import shake_hands
from pytest_dsocr.adapters.mlx_vlm import encoders
from pytest_dsocr.base.errors import DsocrError, is_of_machine
from pytest_dsocr.cli import load
from pytest_dsocr.cli.main import main, parser
from pytest_dsocr.compare.output import compare_output
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr2 import FAMILY as DEEPSEEK_OCR2
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import SubjectFaultError, SubjectHungError
from pytest_dsocr.records.reference_result import Output
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import NotOfferedError, Offers, Setup
from tests.adapters.conftest import serving
from tests.adapters.server import TEXT
from tests.compare.made import observation


def loaded(spec: str) -> tuple[Any, str]:
    with watching([]) as watch:
        subject = load_subject(spec, Setup())
    [note] = watch.notes
    return subject, note


TINY = make_case(shipped("dev-3")[0], "markdown", "tiny", 7, family=DEEPSEEK_OCR)


def read(subject: Any) -> str:
    text: str = subject.read(TINY.page, prompt=TINY.prompt, preset=TINY.preset, max_new_tokens=TINY.max_new_tokens)
    return text


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_page_is_what_the_server_answers(address: str, stream: str) -> None:
    subject, note = loaded(f"{address}/plain/v1?model=one&stream={stream}")
    assert read(subject) == TEXT
    assert note == (
        f"the server at {address}/plain/v1: model one; it keeps special tokens; it does not repeat the prompt"
    )


def test_what_it_is_asked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "s3cret")
    query = "prompt={prompt}!&preset={preset}&seed=7&skip_special_tokens=null&key_env=THE_KEY&stream=false"
    subject, note = loaded(f"{address}/tells/v1?{query}")
    assert json.loads(read(subject)) == {
        "model": "one",
        "messages": [{"type": "text", "text": f"{TINY.prompt}!"}],
        "max_tokens": 7,
        "temperature": 0,
        "preset": "tiny",
        "seed": 7,
        "stream": False,
        "key": "Bearer s3cret",
    }
    assert "s3cret" not in note


def test_a_file_holds_what_a_name_cannot(address: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        f"url = '{address}/tells/v1'\nstream = false\n[body]\nseed = 7\n[body.extra]\nsides = ['{{base_size}}']\n"
    )
    reported = json.loads(read(loaded(f"http:{file}")[0]))
    assert (reported["seed"], reported["extra"], reported["skip_special_tokens"]) == (7, {"sides": ["512"]}, False)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("unlisted/v1?model=mine", "model mine; "),
        ("many/v1?model=two", "model two; "),
        ("tells/v1", "; whether it keeps special tokens is unknown, as it found no box on a page that has some; "),
    ],
)
def test_the_handshake_says_what_it_found(address: str, path: str, message: str) -> None:
    assert message in loaded(f"{address}/{path}")[1]


REFUSED = {
    "lost/v1": "takes special tokens out of its text (there are boxes without <|det|>), so that no page",
    "lost_flat/v1": "takes special tokens out of its text (there are boxes without <|det|>), so that no page",
    "echo/v1": "repeats the prompt in front of its text, so that no page can be compared; let it give the answer alone",
    "many/v1": "has not one model; it has one, two: name one, ?model=NAME",
    "plain/v1?model=two": "has no model 'two'; it has one: name one, ?model=NAME",
    "unlisted/v1": "answered 404 Not Found to GET /models: '<!DOCTYPE HTML>",
    "load-error/v1": "answered 500 Out of memory to POST /chat/completions: '<!DOCTYPE HTML>",
    "load-strict/v1": "refuses skip_special_tokens; leave it away, ?skip_special_tokens=null, and let",
    "load-html/v1": "answered '<html>a gateway</html>', which is no JSON; name its /v1",
    "load-odd/v1": "answered '{\"choices\": []}', without a text in choices[0].message.content; see its log",
    "load-short/v1": "broke off in mid-answer, when it had sent nothing; see its log",
    "load-silent/v1?start_limit=0.2": "took more than 0.2 s, when it had sent nothing; if it was only slow, "
    "raise its start_limit",
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_server_that_cannot_be_right_is_refused_before_any_page(address: str, path: str) -> None:
    with pytest.raises(DsocrError) as caught:
        load_subject(f"{address}/{path}", Setup())
    assert str(caught.value).startswith(f"the server at {address}/{path.partition('?')[0]} {REFUSED[path]}")


MISDEEDS = {
    "error/v1": (True, "answered 500 Out of memory to POST /chat/completions: "),
    "memory/v1": (True, 'sent an error in mid-answer, \'{"message": "CUDA out of memory'),
    "busy/v1": (True, "answered 503 Service Unavailable to POST"),
    "crash/v1": (False, "answered 500 The engine died to POST"),
    "breaks/v1": (False, "broke off in mid-answer, when it had sent 20 characters; see its log"),
    "midway/v1": (False, 'sent an error in mid-answer, \'{"message": "the engine died"}\'; see its log'),
    "html/v1?stream=false": (False, "answered '<html>a gateway</html>', which is no JSON; name its /v1"),
    "html/v1": (False, "broke off in mid-answer, when it had sent nothing; see its log"),
    "deep/v1": (False, 'sent \'{"error": [[['),
    "huge/v1": (False, "sent more than 16 MiB; let it stop at max_tokens"),
    **{
        f"{deed}/v1?time_limit=0.2": (True, "took more than 0.2 s, when it had sent ")
        for deed in ("slow", "silent", "drips", "headers")
    },
}
"""With whether it is the machine's fault."""


@pytest.mark.parametrize("path", MISDEEDS)
def test_a_misdeed_is_a_fault_that_says_what_happened_and_whose_it_is(address: str, path: str) -> None:
    is_machines, message = MISDEEDS[path]
    subject, _ = loaded(f"{address}/{path}")
    with pytest.raises(SubjectFaultError) as caught:
        read(subject)
    assert caught.value.stage == "read"
    assert str(caught.value).startswith(f"the server at {address}/{path.partition('?')[0]} {message}")
    assert is_of_machine(caught.value) is is_machines
    assert isinstance(caught.value, SubjectHungError) is ("time_limit" in path)


@pytest.mark.parametrize("path", ["drips/v1", "silent/v1"])
def test_one_that_hangs_is_left_at_the_runs_limit(address: str, path: str) -> None:
    subject, _ = loaded(f"{address}/{path}")
    with watching([]) as watch:
        watch.limit(0.2)
        with pytest.raises(SubjectHungError, match=r"did not return in read within 0\.2 s"):
            CheckedSubject(subject).read(TINY)


def test_one_that_keeps_silent_is_given_up_after_three_requests_in_a_row(address: str) -> None:
    """A socket that listens takes every connection, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        silent = Chat(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "", 0.05)
        for requests in (2, 5):
            assert replace(silent, url=f"{address}/plain/v1", limit_s=60.0).models(), "the row ends with an answer"
            for _ in range(requests):
                with pytest.raises(SubjectHungError) as caught:
                    silent.models()
                assert is_of_machine(caught.value)
        assert "kept silent on 3 requests in a row, and is asked no more" in str(caught.value)
        arrived = 0
        with suppress(BlockingIOError):
            while True:
                listening.accept()[0].close()
                arrived += 1
        assert arrived == 2 + MOST_SILENT


def test_the_handshake_asks_as_the_checkpoints_family_does(address: str) -> None:
    asked: list[tuple[str, str]] = []

    def body(page: Path, prompt: str, preset: Preset, ceiling: int) -> dict[str, Any]:
        asked.append((prompt, preset.name))
        content = [{"type": "text", "text": prompt}]
        return {"messages": [{"content": content}], "max_tokens": ceiling, "skip_special_tokens": False}

    other = replace(DEEPSEEK_OCR, default_preset="base", prompts={"own": "<image>\nRead."})
    with watching([]):
        shake_hands(Chat(f"{address}/unlisted/v1", "", 9.0), "one", body, other, resolve("mini").tokenizer)
    assert asked[0] == ("<image>\nRead.", "base")
    assert encoders(DEEPSEEK_OCR) == {"sam": "sam_model", "clip": "vision_model", "projector": "projector"}
    assert encoders(DEEPSEEK_OCR2) == {"sam": "sam_model", "qwen2": "vision_model", "projector": "projector"}


@pytest.mark.parametrize(
    ("path", "presets"),
    [
        ("right/v1?preset=gundam", ("gundam",)),
        ("right/v1?preset=tiny", ("tiny",)),
        ("right/v1?preset=tiny&presets=small,base", ["small", "base"]),
        ("right/v1?preset={preset}", None),
        ("counts-no-image/v1?preset=gundam", None),
    ],
)
def test_a_server_in_one_preset_is_asked_for_no_other(address: str, path: str, presets: Any) -> None:
    """The token counts show the preset, unless each request names one."""
    subject, note = loaded(f"{address}/{path}")
    assert subject.presets == presets
    assert ("its prompts have as many tokens as in" in note) == (path.startswith("right") and "{" not in path)
    with suppress(NotOfferedError) if presets is None or "tiny" in presets else pytest.raises(NotOfferedError):
        Offers.of(subject).check(TINY)
        assert presets is None or "tiny" in presets


def test_a_server_that_dies_in_mid_request_costs_what_comes_after() -> None:
    with serving() as address:
        subject, _ = loaded(f"{address}/dies/v1")
        with pytest.raises(SubjectFaultError, match=r"broke .*off.*, when it had sent 20 characters; see its log"):
            read(subject)
        with pytest.raises(SubjectFaultError, match=r"cannot be reached|broke the connection off"):
            read(subject)


def test_a_limit_that_the_server_names_is_reported_and_the_end_of_sequence_is_no_text(address: str) -> None:
    assert read(loaded(f"{address}/eos/v1")[0]) == TEXT
    reported = {}
    for deed in ("length", "plain"):
        answer = run_teacher_forced(loaded(f"{address}/{deed}/v1")[0], TINY, observation())
        reported[deed] = next(compare_output(answer, Output(TEXT + "!", (), "", {}), tolerances("float32"), None))
    assert reported["length"].measured.startswith("stopped at its own limit of tokens, as the server says")
    assert "limit of tokens" not in reported["plain"].measured


def test_the_time_to_the_first_text_is_that_of_the_first_piece(address: str) -> None:
    subject, _ = loaded(f"{address}/plain/v1")
    subject._chat = replace(subject._chat, now=count().__next__)
    read(subject)
    assert subject.first_token_ms == 1e3, "the second look at the clock, however many pieces come"
    at_once, _ = loaded(f"{address}/plain/v1?stream=false")
    read(at_once)
    assert at_once.first_token_ms is None


def test_one_that_is_not_there_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    message = rf":{port}/v1 cannot be reached \(connection refused\); start it, or name"
    with pytest.raises(DsocrError, match=message) as caught:
        load_subject(f"http://127.0.0.1:{port}/v1", Setup())
    assert is_of_machine(caught.value)


BAD = [
    ("http:nowhere", "'http:nowhere' is no server; give http://HOST:PORT/v1?model=NAME, or http:FILE.toml"),
    ("http://here/v1?time_limit=0", " has a wrong time_limit: expected float > 0.0; "),
    ("http://here/v1?stream=maybe", " has a wrong stream: expected bool, got str; "),
    ("http://here/v1?key_env=ABSENT_KEY", "there is no environment variable ABSENT_KEY with the server's key; set it"),
    ("http://here/v1?prompt={pages}", "there is no field {pages}; the fields are {page}, "),
    ("http:absent.toml", "absent.toml cannot be read ("),
]


def test_a_bad_name_is_refused_before_anything_is_asked() -> None:
    for spec, message in BAD:
        with pytest.raises(DsocrError, match=re.escape(message)):
            load_subject(spec, Setup())


def test_under_load_pages_and_errors_are_counted_and_times_are_kept(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, reading = tmp_path / "load.json", ["--pages", str(shipped("dev-3")[2]), "--at-once", "1,4"]
    assert main(["load", f"{address}/plain/v1", *reading, "--out", str(kept)]) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[2:4]]
    assert rows == [["1", "8", "0"], ["4", "12", "0"]]
    assert main(["history", str(tmp_path / "nights"), "--add", str(kept)]) == 0
    assert "page/4" in capsys.readouterr().out
    assert main(["load", f"{address}/busy/v1", *reading]) == 1
    assert "503 Service Unavailable" in (out := capsys.readouterr().out)
    assert [line.split()[:3] for line in out.splitlines()[2:4]] == [["1", "0", "8"], ["4", "0", "12"]]


def test_each_level_of_load_is_shown_when_it_ends() -> None:
    """The server ends between two of them."""
    with serving() as address:
        words = ["load", f"{address}/plain/v1", "--pages", str(shipped("dev-3")[2]), "--at-once", "1", "2,4"]
        options = parser(words).parse_args(words)
        lines = load.run(options)
        first = [next(lines).split() for _ in range(3)][-1]
    second, third = (next(lines).split() for _ in range(2))
    assert [row[:3] for row in (first, second, third)] == [["1", "8", "0"], ["2", "0", "8"], ["4", "0", "12"]]
    assert "connection refused" in " ".join(lines)
    assert options.status == 1
