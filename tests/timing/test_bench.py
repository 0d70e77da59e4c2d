"""``dsocr bench`` with real processes: what it finds, what a side may be, and one that cannot be measured."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.report.bench import MARKER
from pytest_dsocr.timing import pairs as pairs_module
from pytest_dsocr.timing.candidate import TEMPORARY
from pytest_dsocr.timing.counts import PARTS
from tests.checkout import CHECKOUT, git
from tests.processes import await_, await_ended

SUBJECTS = "tests.timing.sleeping:"
QUICK = ("--preset=tiny", "--max-new-tokens=4")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bench(a: str, b: str, *options: str) -> int:
    return main(["bench", f"subject:{SUBJECTS}{a}", f"subject:{SUBJECTS}{b}", *QUICK, "--out=out.json", *options])


def result() -> Any:
    return json.loads(Path("out.json").read_text(encoding="utf-8"))


def paces() -> dict[str, str]:
    return {one["quantity"]: one["pace"] for one in result()["judgements"]}


@pytest.mark.dsocr_slow
def test_a_side_against_itself_is_the_same_and_one_that_sleeps_longer_slower(capsys: Capture) -> None:
    assert bench("Sleeping", "Sleeping", "--max-slowdown=page=0.4") == 0
    assert paces() == {"page": "SAME"}
    assert [path.name for path in Path().rglob("*")] == ["out.json"], "nothing is written that was not asked for"
    assert bench("Sleeping", "Slower", "--max-slowdown=page=0.1") == 1
    assert paces() == {"page": "SLOWER"}
    assert len(result()["a"]["rounds"]) == len(result()["b"]["rounds"]) == 4, "no more than are needed"
    assert 1.3 < result()["judgements"][0]["ratio"] < 1.7
    message = capsys.readouterr().out
    assert re.search(r"^page +\d+\.?\d* +\d+\.?\d* +1\.\d+ +1\.\d+ to 1\.\d+ +1\.100  SLOWER$", message, re.MULTILINE)


@pytest.mark.dsocr_slow
def test_new_processes_are_asked_whether_a_small_change_is_of_the_code(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARTS", "starts")
    assert bench("Sleeping", "SlightlySlower", "--max-slowdown=page=0.02") == 1
    assert bench("Sleeping", "Unlucky", "--max-slowdown=page=0.02") == 2
    assert Path("starts").read_text().split() == ["started"] * 2, "no third one is asked where the second disagrees"
    assert "AMBIGUOUS; SLOWER, but 1.000 SAME in new processes\n" in capsys.readouterr().out
    Path("starts").unlink()
    assert bench("Unlucky", "Sleeping", "--max-slowdown=page=0.02") == 0
    assert "NOT-SLOWER; FASTER, but 1.000 SAME in new processes\n" in capsys.readouterr().out


@pytest.mark.dsocr_slow
def test_the_slower_stage_is_named_and_no_other(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    views = ("--markdown=comment.md", "--bencher=bmf.json")
    assert (
        bench("Staged", "StagedSlower", "--max-slowdown=0.6", "--max-slowdown=decode=0.1", "--max-rounds=24", *views)
        == 1
    )
    assert Path("step.md").read_text(encoding="utf-8") == Path("comment.md").read_text(encoding="utf-8") + "\n"
    comment = Path("comment.md").read_text(encoding="utf-8").splitlines()
    assert comment[:2] == [MARKER, "**dsocr bench: B is slower: decode**"]
    assert [line.split(" | ")[-1] for line in comment if line.startswith("| decode |")] == ["SLOWER |"]
    metrics, walls = json.loads(Path("bmf.json").read_bytes()), [one["wall_ms"] for one in result()["b"]["rounds"]]
    assert metrics.keys() == {f"dsocr/{name}" for one in walls for name in one}
    latency = metrics["dsocr/page"]["latency"]
    assert latency["value"] == pytest.approx(1e6 * median(one["page"] for one in walls if "page" in one))
    assert latency["lower_value"] <= latency["value"] <= latency["upper_value"]
    found = paces()
    assert found.pop("decode") == "SLOWER"
    assert {found[name] for name in ("vision", "prefill")} == {"SAME"}


@pytest.mark.dsocr_slow
def test_an_accepted_slow_down_has_a_line_with_a_date_and_a_bench_is_on_the_axis_of_nights(capsys: Capture) -> None:
    Path("known").write_text("perf/test_stages.py::test_is_no_slower[page]  # until 2999-01-31: checks its sums\n")
    assert bench("Sleeping", "Slower", "--max-slowdown=page=0.1", "--xfails=known") == 0
    shown = capsys.readouterr().out
    assert "accepted        page: checks its sums (until 2999-01-31)\n" in shown
    assert "verdict         B is slower as accepted: page" in shown
    assert main(["history", "nights", "--add=out.json", "--html=nights.html"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"page \d[^,]* ms [^,]*, SLOWER as accepted accepted page slower since .*: checks its sums", shown)
    Path("known").write_text("test_is_no_slower[page]  # until 2026-01-31: no longer\n")
    assert bench("Sleeping", "Slower", "--max-slowdown=page=0.1", "--xfails=known") == 1


@pytest.mark.dsocr_slow
def test_what_there_is_is_judged_where_the_time_is_up_or_the_user_stops_it(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("Sleeping", "Sleeping", "--max-slowdown=page=0.4", "--seconds=0.0001") == 2
    assert (len(result()["a"]["rounds"]), paces()) == (1, {"page": "AMBIGUOUS"})
    assert "(the 0.0001 s of --seconds were over after 1 pair)" in capsys.readouterr().out
    one_pair = pairs_module.one_pair

    def stopped(both: Any, number: int, *how: Any) -> Any:
        if number == 8:
            raise KeyboardInterrupt
        return one_pair(both, number, *how)

    monkeypatch.setattr(pairs_module, "one_pair", stopped)
    assert bench("Sleeping", "SlightlySlower", "--max-slowdown=page=0.08") == 2
    assert (len(result()["a"]["rounds"]), result()["cut_short"]) == (8, "interrupted after 8 pairs")
    assert 1.05 < result()["judgements"][0]["ratio"] < 1.2
    assert result()["left_out"] == [f"counting {part}" for part in PARTS]


@pytest.mark.dsocr_slow
def test_one_stage_is_judged_alone_and_too_few_rounds_are_told(capsys: Capture) -> None:
    assert bench("Staged", "StagedSlower", "--stage=decode", "--max-slowdown=decode=0.4", "--max-rounds=4") == 2
    assert paces() == {"decode": "AMBIGUOUS"}
    taken = [[*one["wall_ms"]] for one in result()["b"]["rounds"]]
    assert taken == [*[["decode"]] * 4, ["page"]], "no more is measured, except one page: limits depend on it"
    assert "cut short       fewer than 12 pairs tell only large differences" in capsys.readouterr().out


@pytest.mark.dsocr_slow
def test_sides_that_go_apart_are_driven_along_the_tokens_of_the_first(capsys: Capture) -> None:
    """The other side would end at its first token, without a step to compare."""
    assert bench("Staged", "StagedOther", "--max-slowdown=0.6", "--max-slowdown=decode=0.1") == 1
    assert paces()["decode"] == "SLOWER"
    assert {len(one["wall_ms"]) for one in result()["b"]["rounds"] if "page" in one["wall_ms"]} == {1}
    assert (result()["along"], result()["b"]["exact"]["tokens.output"]) == (4, 4)
    message = capsys.readouterr().out
    assert "verdict         B is slower: decode (along A's 4 tokens)" in message
    assert "same work       both were driven along A's 4 tokens; page is the sum of its stages" in message


HUNG = r"its process gave no answer within 0\.2 s and was ended; see"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("Sleeping Raising", r"B \(subject:.*Raising\): work failed with RuntimeError: out of luck\n.*Traceback"),
        ("Sleeping Crashing", r"B \(.*\): \w+: its process ended with status 7\ncannot go on"),
        ("Hanging Hanging --time-limit=0.2", rf"A \(.*\): work: {HUNG} --time-limit\n"),
        ("Hanging Hanging --start-limit=0.2", rf"A \(.*\): load: {HUNG} --start-limit\n"),
    ],
)
def test_a_side_that_cannot_be_measured_is_reported_in_words(capsys: Capture, arguments: str, message: str) -> None:
    """Both sides hang where one does, and neither loads in the time of one answer."""
    assert bench(*arguments.split()) == 3
    assert re.match(f"dsocr: {message}", capsys.readouterr().err, re.DOTALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing .", "'nothing' names nothing to measure, and there is no git repository here; give a commit, tag"),
        ("env:absent .", "env:absent is no environment"),
        (". . --max-slowdown=decode=x", "'x' is no"),
    ],
)
def test_bad_names_and_options_are_refused(capsys: Capture, arguments: str, message: str) -> None:
    assert main(["bench", *arguments.split()]) == 3
    assert capsys.readouterr().err.startswith(f"dsocr: {message}")


@pytest.fixture
def repository(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of two commits, the second of which sleeps longer; its module is in ``src``."""
    temporary = str(tmp_path_factory.mktemp("temporary"))
    monkeypatch.setenv("TMPDIR", temporary)
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    (tmp_path / "src").mkdir()
    git("init")
    for name in ("Sleeping", "Slower"):
        code = f"from tests.timing.sleeping import {name} as Engine\n"
        (tmp_path / "src" / "my_engine.py").write_text(code, encoding="utf-8")
        git("add", "src")
        git("commit", "-m", name)
    return tmp_path


def left_behind() -> list[Path]:
    return [*Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*")]


@pytest.mark.dsocr_slow
def test_two_commits_are_compared_and_their_worktrees_removed(repository: Path, capsys: Capture) -> None:
    (repository / "src" / "my_engine.py").write_text("raise ImportError('not to be imported')\n", encoding="utf-8")
    more = ("--subject=my_engine:Engine", "--max-slowdown=page=0.1", "--out=out.json", *QUICK)
    assert main(["bench", "HEAD~1", "main", *more]) == 1
    found = result()
    assert [found[side]["identity"]["commit"] for side in "ab"] == git("rev-parse", "HEAD~1", "HEAD").split()
    assert found["judgements"][0]["pace"] == "SLOWER"
    assert git("worktree", "list").count("\n") == 0
    assert left_behind() == []
    assert re.search(r"^A  +HEAD~1, commit [0-9a-f]{12}, my_engine:Engine", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.dsocr_slow
def test_a_commit_that_is_not_what_runs_is_refused(repository: Path, capsys: Capture) -> None:
    assert main(["bench", "HEAD~1", "HEAD", f"--subject={SUBJECTS}Sleeping", *QUICK]) == 3
    assert "would not be measured: nothing that was loaded is its code" in capsys.readouterr().err


@pytest.mark.dsocr_slow
def test_an_interrupt_ends_both_sides_and_removes_the_worktrees(repository: Path) -> None:
    code = "from tests.timing.sleeping import Hanging\n\n\nclass Engine(Hanging):\n    def __init__(self):\n"
    code += "        import os\n        open(os.environ['STARTED'], 'a').write(f'{os.getpid()}\\n')\n"
    (repository / "src" / "my_engine.py").write_text(code, encoding="utf-8")
    git("commit", "-am", "it hangs")
    started = repository / "started"
    command = [sys.executable, "-m", "pytest_dsocr", "bench", "HEAD", "HEAD", "--subject=my_engine:Engine", *QUICK]
    process = subprocess.Popen(command, env={**os.environ, "STARTED": str(started)}, stderr=subprocess.PIPE, text=True)
    await_(lambda: started.is_file() and len(started.read_text(encoding="utf-8").split()) == 2)
    assert (git("worktree", "list").count("\n"), len(left_behind())) == (2, 2)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate()
    assert (process.returncode, message.strip()) == (130, "dsocr: interrupted")
    assert git("worktree", "list").count("\n") == 0
    assert left_behind() == []
    await_ended(*map(int, started.read_text(encoding="utf-8").split()))


@pytest.mark.dsocr_slow
def test_an_environment_is_run_by_its_own_python(capsys: Capture) -> None:
    python = Path("there/bin/python")
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nSTARTED_THERE=1 exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    Path("my_engine.py").write_text(
        "import os\nfrom tests.timing.sleeping import Other, Sleeping\n\n\n"
        "def engine():\n    return Other() if 'STARTED_THERE' in os.environ else Sleeping()\n",
        encoding="utf-8",
    )
    assert main(["bench", ".", "env:there", "--subject=my_engine:engine", "--max-rounds=2", *QUICK]) == 2
    assert "the two do not read the same" in capsys.readouterr().out


@pytest.mark.dsocr_slow
def test_a_candidate_of_another_commit_needs_no_probe_of_its_own(tmp_path: Path, capsys: Capture) -> None:
    """The commit's own ``pytest_dsocr`` loads the subject, and this one's probe measures it."""
    package = tmp_path / "other" / "pytest_dsocr"
    package.mkdir(parents=True)
    for room in (CHECKOUT / "pytest_dsocr").iterdir():
        if room.name != "timing":
            (package / room.name).symlink_to(room)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(package.parent)
        assert main(["bench", ".", ".", f"--subject={SUBJECTS}Sleeping", "--max-rounds=2", *QUICK]) == 2
    assert "AMBIGUOUS" in capsys.readouterr().out
