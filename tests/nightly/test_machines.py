"""One night on two machines: each reads its share of the pages, and one result is made of both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.nights.config import Config
from pytest_dsocr.nights.parts import batched, command, jobs
from pytest_dsocr.nights.record import read
from pytest_dsocr.nights.state import read_night
from pytest_dsocr.pages.page_list import shipped
from tests.nightly.conftest import run_night, write_config

PAGES = [next(page for page in shipped("dev-20") if page.stem == name) for name in ("figures_201", "receipt_086")]
NAMES = tuple(f"{name}.png" for name in "abcdefg")


def merge(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pytest_dsocr", "nightly", "--merge", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("size", "machines", "found"),
    [
        (0, 1, ["abcdefg"]),
        (0, 3, ["abcdefg"]),
        (2, 1, ["ab", "cd", "ef", "g"]),
        (1, 3, ["abc", "defg"]),
        (2, 2, ["abcd", "efg"]),
        (1, 7, ["abcdefg"]),
    ],
)
def test_a_batch_holds_pages_for_every_machine(size: int, machines: int, found: list[str]) -> None:
    assert ["".join(page[0] for page in batch) for batch in batched(NAMES, size, machines)] == found


def test_more_machines_than_pages_are_refused() -> None:
    with pytest.raises(DsocrError, match="7 pages are too few for 8 machines; make fewer shards"):
        batched(NAMES, 0, 8)


def test_a_machine_behind_the_first_runs_only_what_is_spread() -> None:
    config = Config(shard="2/2", device="cuda", vendor="vendor")
    found = [*jobs(config, {"pages": NAMES, "live_pages": ()})]
    assert [job.name for job in found] == ["doctor", "recorded", "live"]
    words = command(found[1], config, Path("out"), 8)
    assert "--shard=2/2" in words
    assert words[-2:] == ["-n", "4"], "of seven pages this machine has four at most"


def test_two_machines_make_one_night(home: Path) -> None:
    write_config(PAGES, 'parts = ["doctor", "recorded", "cache"]', 'pytest = ["-k", "test_text or test_length"]')
    for number in (1, 2):
        done = run_night(f"--shard={number}/2", f"--out=part-{number}", "--history=")
        assert done.returncode == 0, done.stdout + done.stderr
    assert merge("part-1", "--out=whole").returncode != 0
    done = merge("part-1", "part-2", "--out=whole", "--history=kept")
    assert done.returncode == 0, done.stdout + done.stderr
    night = read_night(Path("whole"))
    assert [entry.name for entry in night.entries] == ["doctor-1", "doctor-2", "recorded", "cache"]
    result = json.loads(Path("whole/recorded/dsocr.json").read_text(encoding="utf-8"))
    assert {case["page"] for case in result["cases"]} == {page.name for page in PAGES}
    assert [one["worker"] for one in result["spent"]] == ["1/2", "2/2"]
    [kept], _ = read(Path("kept"))
    assert {f"{page.stem}-gundam-markdown" for page in PAGES} < {*kept.cells}
    links = re.findall(r'href="([^"]+)"', Path("whole/index.html").read_text(encoding="utf-8"))
    assert all(Path("whole", link).is_file() for link in links)
    assert "| recorded | 1/2 cpu | 1 |" in Path("whole/summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ended": ""}, "is not finished"),
        ({"commit": "f" * 40}, "their commits are"),
        ({"shard": "1/2"}, "these are shards 1/2, 1/2; give each of one night once"),
        ({"format": 0}, "has a wrong format"),
    ],
)
def test_what_is_not_of_one_night_is_refused(home: Path, change: dict[str, object], told: str) -> None:
    write_config(PAGES, 'parts = ["cache"]')
    for number in (1, 2):
        run_night(f"--shard={number}/2", f"--out=part-{number}", "--minutes=0.0001", "--history=")
    path = Path("part-2/night.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    if "shard" in change:
        content["config"] |= change
    else:
        content |= change
    path.write_text(json.dumps(content), encoding="utf-8")
    done = merge("part-1", "part-2", "--out=whole")
    assert done.returncode == 2
    assert told in done.stderr
