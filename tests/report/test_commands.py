"""The command to type next, at the end of a report."""

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_dsocr.cli.main import parser
from pytest_dsocr.plugin.config import typed_options
from pytest_dsocr.report.payload import RunPayload
from pytest_dsocr.report.words import following, record
from tests.report.made import MADE, MATCH, WRONG, payload, result, run_payload

GPU = {**MADE.to_json(), "checkpoint": "synthetic:full", "device": "cuda:0", "dtype": "bfloat16"}
MINI = "--checkpoint=mini --device=cpu --dtype=float32 --attention=eager"
RECORD = f"dsocr vendor record path/to/vendor dev-3 --presets gundam --prompts markdown {MINI}"
LOST = payload(left_out="recording", reason="lost", run=run_payload())


@pytest.mark.parametrize(
    ("run", "command"),
    [
        (None, "dsocr vendor record path/to/vendor PAGES"),
        (run_payload(), RECORD),
        (
            run_payload(pages=["my pages/a.png"], presets=["tiny", "gundam"], prompts=["free"]),
            f"dsocr vendor record path/to/vendor 'my pages/a.png' --presets tiny gundam --prompts free {MINI}",
        ),
        (
            run_payload(provenance=GPU),
            "dsocr vendor record path/to/vendor dev-3 --presets gundam --prompts markdown "
            "--checkpoint=synthetic:full --device=cuda:0 --dtype=bfloat16 --attention=eager",
        ),
    ],
)
def test_what_is_missing_is_recorded_with_the_runs_choices(run: RunPayload | None, command: str) -> None:
    assert record(run) == command
    parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize(
    ("tests", "command"),
    [
        (
            [("passed", payload(MATCH, run=run_payload(subject="a:B", reference="session")))],
            "pytest suites --dsocr-reference=path/to/vendor",
        ),
        ([("error", {**LOST, "run": run_payload(subject="b")})], f"{RECORD}\npytest suites --dsocr-reference=session"),
        ([("error", LOST), ("failed", payload(WRONG))], "pytest 'test_case.py::test[0]'"),
    ],
)
def test_the_next_command_is_that_of_what_came_out(tests: list[tuple[str, Any]], command: str) -> None:
    assert [message for _, message in following(result(*tests))] == command.splitlines()


def test_what_was_typed_beside_the_tests_is_kept() -> None:
    typed = ("suites", "--dsocr-subject", "a:B", "-n", "2", "other.py::test")
    config: Any = SimpleNamespace(args=["suites", "other.py::test"], invocation_params=SimpleNamespace(args=typed))
    assert typed_options(config) == ["--dsocr-subject=a:B", "-n", "2"]
