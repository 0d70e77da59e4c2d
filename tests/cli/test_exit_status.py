"""Exit statuses of ``dsocr compare`` and all commands, as documented."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.cli import main as command_line
from pytest_dsocr.cli.main import main
from pytest_dsocr.report.difference import DiffStatus as DiffStatus
from pytest_dsocr.report.file import read_result
from pytest_dsocr.timing.bench import BenchStatus as BenchStatus
from tests.cli.test_commands import ARGUMENTS
from tests.markdown import table
from tests.plugin.conftest import Repository

SUBJECTS = """
    import os
    import resource
    from pathlib import Path

    import torch

    from standin import Misreader, Reader


    class OutOfMemory(Reader):
        def read(self, page, **how):
            raise torch.OutOfMemoryError("as CUDA says it")


    class WrongAndOutOfMemory(Misreader):
        def read(self, page, **how):
            return super().read(page, **how) if page.stem == "page" else OutOfMemory().read(page)


    class FillsTheDisk(Reader):
        def read(self, page, **how):
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            return super().read(page, **how)
"""
TESTS = """
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    def test_text(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")

    def test_pace(dsocr_check):
        dsocr_check([Comparison("perf/decode", Verdict.{pace}, "measured")])
"""


@pytest.fixture(autouse=True)
def _repository(unset: None, pytester: pytest.Pytester) -> None:
    """Make two pages, stand-ins for both sides, and a user's tests."""
    Repository(pytester).settle()
    pytester.makepyfile(mine=SUBJECTS, test_it=TESTS.format(pace="MATCH"))
    for name in ("page", "second"):
        shutil.copy("page.png", pytester.mkdir(name) / f"{name}.png")


def ended(*arguments: str, subject: str = "Reader") -> tuple[int, str]:
    """Run ``dsocr compare``, and return its status and the word in its result."""
    asked = ["page", "second", "--tests=test_it.py", f"--subject=mine:{subject}", *arguments]
    done = subprocess.run([sys.executable, "-m", "pytest_dsocr", "compare", *asked], capture_output=True, check=False)
    reported: dict[str, Any] = json.loads(Path("dsocr-out/dsocr.json").read_text(encoding="utf-8"))
    return done.returncode, reported.get("ended_as", reported["status"])


@pytest.mark.dsocr_slow
def test_wrong_counts_before_a_machine_out_of_order_and_slower_is_neither(pytester: pytest.Pytester) -> None:
    assert ended("--isolate", subject="OutOfMemory") == (10, "infrastructure")
    assert ended(subject="WrongAndOutOfMemory") == (1, "wrong")
    pytester.makepyfile(test_it=TESTS.format(pace="WRONG"))
    assert ended() == (11, "slower")


def test_weights_that_are_not_there_refuse_the_run_and_are_the_machines_fault() -> None:
    assert ended("--checkpoint=no/such/weights.bin") == (10, "infrastructure")
    with pytest.raises(DsocrError, match=r"the run was refused: .*no/such/weights.bin' is not a checkpoint"):
        read_result(Path("dsocr-out"))


@pytest.mark.dsocr_slow
def test_a_disk_that_is_full_at_the_end_is_the_machines_fault() -> None:
    assert ended(subject="FillsTheDisk") == (10, "running")


MOUNT = 'mount -t tmpfs -o size=$0 tmpfs out && exec "$@"'
FULL = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT)
COMPARE, PYTEST = ("-m", "pytest_dsocr", "compare", "--out=out"), ("-m", "pytest", "--dsocr-out=out")


@pytest.mark.parametrize(("how", "size"), [(COMPARE, "8k"), (PYTEST, "4k")])
def test_a_disk_that_is_full_from_the_start_is_the_machines_fault(how: tuple[str, ...], size: str) -> None:
    """Leave 8 KiB: ``dsocr compare`` can write its mark once, and pytest cannot write it again."""
    Path("out").mkdir()
    command = [*FULL, size, sys.executable, *how]
    try:
        done = subprocess.run([*FULL, size, "true"], capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if done.returncode:
        pytest.skip("needs mounts of its own")
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, b"No space left" in done.stderr) == (10, True)


EVERY = "all, unless listed below"


def statuses() -> dict[str, set[int]]:
    """Return the documented statuses of each command."""
    found: dict[str, set[int]] = {}
    for commands, status, _ in table("docs/running.md", "command"):
        for command in commands.split(", `") if "`" in commands else [commands]:
            found.setdefault(command.strip("`"), set()).add(int(status))
    return found


def test_the_documentation_has_every_status() -> None:
    declared: dict[str, Iterable[int]] = {"diff": DiffStatus, "bench": BenchStatus, "compare": {0, 1, 2, 4, 5, 11}}
    assert {name: statuses()[name] for name in declared} == {name: {*map(int, of)} for name, of in declared.items()}


RAISED: dict[type[BaseException] | OSError, int] = {
    DsocrError: 2,
    MachineError: 10,
    MemoryError: 10,
    OSError(ENOSPC, "no room"): 10,
    ZeroDivisionError: 3,
    KeyError: 3,
    FileNotFoundError: 3,
    KeyboardInterrupt: 130,
}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_each_kind_of_failure_has_its_status_in_every_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function = command_line._imported(command_line.COMMANDS[command][0])
    for error, status in RAISED.items():

        def run(options: object, error: Any = error) -> Iterator[str]:
            yield "begins"
            raise error

        monkeypatch.setattr(module, function, run)
        assert main([*command.split(), *ARGUMENTS[command]]) == status, error
        assert status in statuses()[EVERY] | statuses().get(command, set())
