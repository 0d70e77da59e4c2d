"""The configuration, the jobs and commands it makes, what still fits, which status counts; how a process is ended."""

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import parser
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.night.jobs import TIME_IS_OVER, command, environment, jobs, run_command
from pytest_dsocr.night.run import _too_long, facts
from pytest_dsocr.night.state import PARTS, Config, Entry, NightState, Step, is_whole, key_of, read_config
from pytest_dsocr.night.views import write_views
from pytest_dsocr.report.file import write_json
from tests.checkout import CHECKOUT
from tests.markdown import table
from tests.processes import await_, has_ended
from tests.report.made import result

PAGES = tuple(f"{name}.png" for name in "abcde")
ON_GPUS = Config(device="cuda", gpus=(4, 6), vendor="vendor", batch=2, may_miss=("baseline",), subject="my_ocr:MyOcr")


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "nightly.toml").write_text(text, encoding="utf-8")
    return read_config(tmp_path / "nightly.toml")


def words(part: str, config: Config = ON_GPUS) -> list[str]:
    job = next(one for one in jobs(config, {"pages": PAGES, "live_pages": PAGES}) if one.part == part)
    return command(job, config, Path("out") / job.name, 2)


def test_the_examples_are_read_and_the_keys_are_those_of_the_documentation() -> None:
    assert read_config(CHECKOUT / "ci/nightly/example.toml").pages == ("dev-3",)
    assert len(read_config(CHECKOUT / "ci/nightly/full_size.toml", {"vendor": "files"}).pages) == 4
    named = [row[0].strip("`") for row in table("docs/running.md", "key")]
    assert sorted(named) == sorted(field.name for field in fields(Config))


def test_paths_are_seen_from_the_file_and_words_stay(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "weights").mkdir()
    config = read(tmp_path, 'checkpoint = "weights"\npages = ["scans", "dev-20"]\nout = "night"\nminutes = 5')
    assert config.checkpoint == str(tmp_path / "weights")
    assert config.pages == (str(tmp_path / "scans"), "dev-20")
    assert (config.out, config.minutes) == (str(tmp_path / "night"), 5)
    assert read(tmp_path, 'checkpoint = "deepseek-ai/DeepSeek-OCR"').checkpoint == "deepseek-ai/DeepSeek-OCR"
    assert read(tmp_path, "").out == str(tmp_path / "nightly-out")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pages = [", "give a configuration file in TOML"),
        ('page = ["dev-3"]', "there is no 'page'; there are checkpoint, "),
        ('minutes = "long"', "wrong minutes: expected float, got str"),
        ('parts = ["perf", "speed"]', "there is no part speed; there are doctor, recorded"),
        ('parts = ["live"]', "the part live needs vendor"),
    ],
)
def test_what_nobody_knows_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DsocrError, match=said.replace("(", r"\(")):
        read(tmp_path, text)


def test_pages_go_in_batches_and_in_their_order() -> None:
    found = [*jobs(ON_GPUS, {"pages": PAGES, "live_pages": ()})]
    assert [(job.name, "".join(page[0] for page in job.pages)) for job in found if job.part == "recorded"] == [
        ("recorded-001", "ab"),
        ("recorded-002", "cd"),
        ("recorded-003", "e"),
    ]
    assert [job.part for job in found if job.name == job.part] == ["doctor", "cache", "perf", "cost"]
    assert {job.part for job in found} == {*PARTS}
    assert "live" not in {job.part for job in jobs(replace(ON_GPUS, vendor=""), {"pages": PAGES, "live_pages": ()})}


def test_every_command_is_one_that_the_command_line_takes() -> None:
    for part in PARTS:
        arguments = words(part)[4:]
        parser().parse_args(arguments[: arguments.index("--")] if "--" in arguments else arguments)


def test_each_gpu_has_a_worker_and_times_have_a_gpu_alone() -> None:
    assert words("recorded")[-2:] == ["-n", "2"]
    assert "-n" not in words("recorded", replace(ON_GPUS, batch=1)), "of a page there is one process"
    assert "-n" not in words("perf")
    parts = {job.part: environment(job, ON_GPUS) for job in jobs(ON_GPUS, {"pages": PAGES, "live_pages": PAGES})}
    assert parts["live"] == {"CUDA_VISIBLE_DEVICES": "4,6"}
    assert parts["perf"] == {"CUDA_VISIBLE_DEVICES": "4"}
    on_cpu = replace(ON_GPUS, device="cpu", workers=3)
    assert "-n" in words("recorded", on_cpu)
    assert environment(next(jobs(on_cpu, {"pages": PAGES, "live_pages": ()})), on_cpu) == {}


def test_only_what_a_part_cannot_have_may_be_missing() -> None:
    missing = {part: [word for word in words(part) if "may-miss" in word] for part in ("recorded", "live")}
    assert missing == {
        "recorded": ["--may-miss=vendor", "--may-miss=baseline"],
        "live": ["--may-miss=baseline"],
    }
    assert "--reference=vendor" in words("live")
    assert "--reference=vendor" not in words("recorded")
    assert "--no-skip" in words("recorded")
    assert "--no-skip" not in [*words("perf"), *words("recorded", replace(ON_GPUS, no_skip=False))]


def entry(part: str, status: int | None = 0, step: Step = Step.DONE, **more: object) -> Entry:
    return Entry(part, part, PAGES, "key", step, status, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "status"),
    [
        ([entry("doctor"), entry("recorded")], 0),
        ([entry("recorded", 1), entry("doctor", 1), entry("perf", 11)], 1),
        ([entry("doctor", 1), entry("perf", 11)], 10),
        ([entry("recorded", 137)], 10),
        ([entry("recorded", step=Step.ENDED), entry("perf", 11)], 10),
        ([entry("perf", 11), entry("live", None, Step.LEFT_OUT)], 11),
        ([entry("recorded"), entry("live", None, Step.LEFT_OUT)], 12),
        ([entry("recorded"), entry("perf", lacking=("baseline",))], 12),
        ([], 10),
        ([entry("recorded", None, Step.WAITING)], 10),
    ],
)
def test_the_gravest_status_counts(entries: list[Entry], status: int) -> None:
    night = NightState(None, Config(), entries=entries, ended="now")
    assert night.status == status
    assert night.verdict.startswith({0: "passes", 1: "wrong", 10: "machine", 11: "slower", 12: "incomplete"}[status])


def test_a_batch_is_begun_only_where_it_fits() -> None:
    job = Entry("recorded-003", "recorded", PAGES[:2])
    done = [entry("recorded", seconds=50.0), entry("cache", seconds=900.0)]
    assert _too_long(job, done, 21) == ""
    assert _too_long(job, done, 19) == "19 s are left, and it would take about 20"
    assert _too_long(job, [], 19) == ""
    assert _too_long(job, [], 0.5) == "the time is over"


def test_a_result_is_taken_over_only_where_it_is_there_to_its_end(tmp_path: Path) -> None:
    assert not is_whole(entry("recorded"), tmp_path)
    (tmp_path / "dsocr.json").write_text(
        '{"format": 2, "status": "running", "id": "a", "started": "2026-11-22T20:00:00"}'
    )
    assert not is_whole(entry("recorded"), tmp_path)
    write_json(tmp_path, result().to_json())
    assert is_whole(entry("recorded"), tmp_path)
    assert is_whole(entry("recorded", 1), tmp_path)
    assert not is_whole(entry("recorded", 10), tmp_path), "a machine that was out of order may be in order now"
    assert not is_whole(entry("recorded", step=Step.ENDED), tmp_path)


def test_a_key_knows_code_command_pages_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "a.png"
    page.write_bytes(b"a")
    job, config = Entry("recorded", "recorded", (str(page),)), Config()

    def key(code: str = "abc", command: tuple[str, ...] = ("dsocr",), gpus: str = "0") -> str:
        return key_of(job, command, {"CUDA_VISIBLE_DEVICES": gpus}.items(), code, config)

    first = key()
    assert first == key() != ""
    assert key("") == ""
    others = {key("abd"), key(command=("dsocr", "-x")), key(gpus="1")}
    page.write_bytes(b"ab")
    others.add(key())
    monkeypatch.setenv("DSOCR_DTYPE", "bfloat16")
    others.add(key())
    assert len(others - {first}) == 5


def test_the_page_shows_what_others_wrote_as_text(tmp_path: Path) -> None:
    night = NightState("<b>", Config(checkpoint="<script>"), entries=[entry("recorded", verdict="<i>")], facts=facts())
    write_views(night, tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    assert not [markup for markup in ("<b>", "<script>", "<i>") if markup in page]


CHILD = "import time, os; open('child', 'w').write(str(os.getpid())); time.sleep(60)"
STUBBORN = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
print("begun", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(code: str, limit_s: float = 30, grace_s: float = 0.3) -> tuple[int, float, str]:
    return run_command([sys.executable, "-c", code], Path("log"), {"OF_NIGHT": "1"}, limit_s, grace_s)


def test_a_process_gives_its_status_and_its_output() -> None:
    status, _, why = run("import os, sys; print(os.environ['OF_NIGHT']); sys.stderr.write('told'); sys.exit(3)")
    assert (status, why) == (3, "")
    assert all(word in Path("log").read_text() for word in ("1\n", "told"))
    assert run("import os; os.kill(os.getpid(), 9)")[0] == 137


def test_one_that_ends_itself_when_asked_may_write_what_it_has() -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); time.sleep(60)"
    status, seconds, why = run(code, limit_s=1, grace_s=20)
    assert (status, why) == (7, TIME_IS_OVER)
    assert seconds < 15


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processes that another has started")
def test_one_that_does_not_end_is_killed_with_its_children() -> None:
    status, _, why = run(STUBBORN, limit_s=2)
    assert (status, why) == (137, TIME_IS_OVER)
    child = int(Path("child").read_text())
    await_(lambda: has_ended(child), within_s=20)  # less than it sleeps
