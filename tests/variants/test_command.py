"""The command that runs the suites on variants: its report, its limit of time, and going on where it ended."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.engine.engine import Engine
from tests.processes import await_
from tests.variants.__main__ import arguments, main, stored_name
from tests.variants.report import markdown
from tests.variants.runs import FailedTest, Job, VariantRun, end, started

ONE_TEST = "--option=--tests=suites/contract/test_policy.py"
QUICK = ("--checkpoint=synthetic:tiny", "--only=copy", "--only=tf32", ONE_TEST, "--jobs=1")


def made(variant: str, checkpoint: str, number: int, ended_as: str = "passes") -> VariantRun:
    """Return a run; a wrong one has a failed test."""
    failed = [FailedTest("test_steps", "logits", ["logits: 2.0 (allowed 1.0)"])] if ended_as == "wrong" else []
    return VariantRun(variant, checkpoint, number, "H200", "bfloat16", ended_as, f"it {ended_as}", {}, failed)


def test_the_report_counts_false_alarms_and_quotes_each() -> None:
    runs = [made("copy", "mini", 1), made("copy", "mini", 2, "wrong"), made("copy", "synthetic:full", 1)]
    runs += [made("fast", "mini", 1, "infrastructure"), made("fast", "synthetic:full", 1)]
    lines = [*markdown(runs, 7, {"tf32": "it needs a GPU"})]
    assert lines[0].startswith("1 false alarms in 4 of 7 runs")
    assert lines[2:7] == [
        "| variant | mini | synthetic:full |",
        "| --- | --- | --- |",
        "| copy | 1 of 2 | 0 of 1 |",
        "| fast | -, 1 without a verdict | 0 of 1 |",
        "| tf32 | skipped: it needs a GPU | skipped: it needs a GPU |",
    ]
    assert "    - logits: 2.0 (allowed 1.0)" in lines
    assert sum("run 2: wrong" in line for line in lines) == 1


def test_large_random_weights_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = arguments(["--dtype=bfloat16", f"--weights={tmp_path}"])
    assert stored_name("mini", options) == "mini"
    assert stored_name("synthetic:tiny", options) == "synthetic:tiny"
    monkeypatch.setattr("tests.variants.__main__.LARGE_BYTES", 0)
    folder = stored_name("synthetic:tiny", options)
    stored: Any = Engine.from_checkpoint(folder, dtype="bfloat16").model
    made_anew: Any = Engine.from_checkpoint("synthetic:tiny", dtype="bfloat16").model
    weights = stored.state_dict()
    assert all(tensor.equal(weights[name]) for name, tensor in made_anew.state_dict().items())
    [file] = Path(folder).glob("*.safetensors")
    before = file.stat().st_mtime_ns
    assert stored_name("synthetic:tiny", options) == folder
    assert file.stat().st_mtime_ns == before


@pytest.mark.dsocr_slow
def test_a_run_is_made_once_and_reported_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, f"--out={tmp_path}"]) == 0
    first = capsys.readouterr()
    [line] = (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    run = json.loads(line)
    assert (run["variant"], run["ended_as"], run["failed"]) == ("copy", "passes", [])
    assert run["comparisons"] > 0
    assert run["seconds"]["process"] > run["seconds"]["loading the subject"] > 0
    assert "[1/1" in first.err
    assert main([*QUICK, f"--out={tmp_path}"]) == 0
    again = capsys.readouterr()
    assert again.out == first.out == (tmp_path / "report.md").read_text(encoding="utf-8")
    assert not again.err


@pytest.mark.dsocr_slow
def test_runs_end_with_the_limit_of_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, f"--out={tmp_path}", "--seconds=0.5"]) == 1
    assert "in 0 of 1 runs" in capsys.readouterr().out


@pytest.mark.dsocr_slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find a group's processes")
def test_a_run_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    job = Job("copy", "synthetic:tiny", 1, "cpu", "cpu", "float32", "synthetic:tiny", ())
    process = started(job, tmp_path, 1)
    await_(lambda: "collected" in (tmp_path / "output.txt").read_text(encoding="utf-8"))
    assert len(living(process.pid)) > 1
    end(process)
    await_(lambda: living(process.pid) == [])


def living(group: int) -> list[int]:
    """Return the ids of a group's processes that have not ended."""
    stats = list[str]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may end meanwhile
            stats.append(entry.read_text(encoding="utf-8"))
    found = {stat.split()[0]: stat.rpartition(")")[2].split() for stat in stats}
    return [int(pid) for pid, (state, _, own, *_) in found.items() if own == str(group) and state != "Z"]
