"""Baselines: found again where all is equal, and refused in words where anything differs."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.foundation.files import seal, unseal
from pytest_dsocr.perf.baseline import Baseline, NoBaselineError, check_acceptable, find, has_any
from tests.perf.made import IDENTITY, PARITY, PLACE, identity, measured

DAYS = 180
OURS = measured({"decode": [15.0 + k / 7 for k in range(12)], "page": [97.0] * 12}, {"tokens.output": 64})
NAME = PLACE.removesuffix(".json")
HOW = "--dsocr-baseline-update"


def made(days_ago: int = 0, **parts: Any) -> Baseline:
    day = date.today() - timedelta(days=days_ago)
    return Baseline(replace(OURS, identity=identity(**parts)), PARITY, day.isoformat(), "pytest it", "cd" * 20)


def refusal(folder: Path, **parts: Any) -> str:
    """What a run of ``identity(**parts)`` is refused with."""
    with pytest.raises(NoBaselineError) as caught:
        find([folder], identity(**parts), DAYS)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A baseline of ``IDENTITY``, in ``tmp_path``."""
    return made().write(tmp_path)


def test_what_is_written_is_found_again_to_the_bit(tmp_path: Path, path: Path) -> None:
    assert path == tmp_path / PLACE
    found = find([tmp_path / "none", tmp_path], IDENTITY, DAYS)
    assert found == made()
    assert found.measured.wall_ms("decode") == OURS.wall_ms("decode")


@pytest.mark.usefixtures("path")
def test_the_package_itself_the_commit_and_the_name_may_be_others(tmp_path: Path) -> None:
    other = identity(name="HEAD", commit="", versions={"pytest-dsocr": "9"})
    assert find([tmp_path], other, DAYS) == made()


def test_ones_own_folder_counts_before_the_shipped_one(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    made(days_ago=1).write(own)
    made(days_ago=2).write(shipped)
    assert find([own, shipped], IDENTITY, DAYS).age_days == 1


def test_without_any_it_says_where_it_looked(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"no baseline of {NAME}: {tmp_path} hold none; accept this run's times as one, {HOW}"


@pytest.mark.parametrize(
    ("parts", "differs"),
    [
        ({"machine": {"gpus": 2}}, "machine.gpus 1, here 2"),
        ({"versions": {"torch": "2.12.0"}}, "versions.torch 2.11.0, here 2.12.0"),
        ({"versions": {"triton": "3"}}, "versions.triton unknown, here 3"),
        ({"page": {"max_new_tokens": 8}}, "page.max_new_tokens 64, here 8"),
        (
            {"machine": {"driver": "1", "cores": 2}, "versions": {"torch": "1", "python": "1"}, "subject": "my:Ocr"},
            "machine.cores 16, here 2; machine.driver 580.1, here 1; versions.python 3.12.3, here 1; "
            "versions.torch 2.11.0, here 1, and 1 more",
        ),
    ],
)
def test_what_differs_is_named(tmp_path: Path, path: Path, parts: Any, differs: str) -> None:
    told = refusal(tmp_path, **parts)
    assert told.endswith(f" as it is here; the nearest, {path}, has {differs}; accept this one, {HOW}")


def test_another_gpu_is_refused_in_a_whole_sentence(tmp_path: Path, path: Path) -> None:
    assert refusal(tmp_path, machine={"gpu": "NVIDIA B200"}) == (
        f"no baseline of {NAME.replace('h200', 'b200')} as it is here; the nearest, {path}, has machine.gpu "
        f"NVIDIA H200, here NVIDIA B200; accept this one, {HOW}"
    )


def test_the_nearest_of_several_is_named(tmp_path: Path, path: Path) -> None:
    made(machine={"gpu": "NVIDIA A100", "driver": "1"}, versions={"torch": "2.12.0"}).write(tmp_path)
    assert f"the nearest, {path}, has versions.torch" in refusal(tmp_path, versions={"torch": "2.12.0"})


def test_one_that_is_too_old_is_refused(tmp_path: Path) -> None:
    made(days_ago=DAYS).write(tmp_path)
    assert find([tmp_path], IDENTITY, DAYS).age_days == DAYS
    path = made(days_ago=DAYS + 1).write(tmp_path)
    assert refusal(tmp_path) == (
        f"{path} is 181 days old, and 180 are allowed (--dsocr-baseline-days); machines change, so make it anew, {HOW}"
    )


@pytest.mark.parametrize("place", [0, 5, 400, -40, -1])
def test_a_single_bit_is_seen(tmp_path: Path, path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    told = refusal(tmp_path)
    assert told.startswith(f"{path} is damaged: its ")
    assert told.endswith(f"; restore it from version control, or make it anew, {HOW}")
    assert has_any([tmp_path], IDENTITY["machine"]), "it was promised all the same"


def test_half_of_one_is_damaged(tmp_path: Path, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])
    assert f"{path} is damaged: its end is missing; restore it" in refusal(tmp_path)


@pytest.mark.parametrize("lost", ["identity", "rounds", "parity", "made"])
def test_one_that_lacks_something_is_damaged(tmp_path: Path, path: Path, lost: str) -> None:
    content = unseal(path.read_bytes())
    path.write_bytes(seal({name: value for name, value in content.items() if name not in (lost, "sha256")}))
    assert f"{path} does not fit: object missing required field {lost}; restore it" in refusal(tmp_path)


def test_one_of_another_format_is_refused(tmp_path: Path, path: Path) -> None:
    content = unseal(path.read_bytes())
    del content["sha256"]
    path.write_bytes(seal({**content, "format": 2}))
    assert f"{path} has a wrong format: invalid enum value 2; restore it" in refusal(tmp_path)


def test_one_of_a_day_that_is_yet_to_come_is_refused(tmp_path: Path) -> None:
    replace(made(), made="2999-01-01").write(tmp_path)
    assert "is dated 2999-01-01, which is yet to come" in refusal(tmp_path)


@pytest.mark.usefixtures("path")
def test_a_damaged_one_of_another_page_is_not_in_the_way(tmp_path: Path) -> None:
    made(page={"name": "a first one"}).write(tmp_path).write_bytes(b'{\n "format": 1')
    assert find([tmp_path], IDENTITY, DAYS) == made()


def test_a_damaged_one_of_another_page_is_told_where_a_page_has_none(tmp_path: Path, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])
    none = f"no baseline of {NAME.replace('form-001', 'other')}"
    over = f"; passed over: {path} is damaged: its end is missing; restore it from version control, or make it anew"
    assert refusal(tmp_path, page={"name": "other"}) == (
        f"{none}: {tmp_path} hold none; accept this run's times as one, {HOW}{over}, {HOW}"
    )
    near = made(page={"name": "third"}).write(tmp_path)
    assert refusal(tmp_path, page={"name": "other"}) == (
        f"{none} as it is here; the nearest, {near}, has page.name third, here other; accept this one, {HOW}"
        f"{over}, {HOW}"
    )


def test_other_files_of_the_folder_are_no_baselines(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia-h200"
    folder.mkdir()
    folder.joinpath("calibration.json").write_bytes(seal({"format": 1}))
    folder.joinpath("figures.json").write_text('{\n "device": "NVIDIA H200"\n}\n')
    assert not has_any([tmp_path], IDENTITY["machine"])
    assert "hold none" in refusal(tmp_path)


@pytest.mark.usefixtures("path")
def test_a_machine_has_one_or_has_none(tmp_path: Path) -> None:
    machine = IDENTITY["machine"]
    assert has_any([tmp_path / "none", tmp_path], {**machine, "driver": "1"})
    assert not has_any([tmp_path], {**machine, "gpus": 4})
    assert not has_any([tmp_path], {"cpu": "A CPU", "cores": 2})


def test_a_wrong_output_is_not_accepted() -> None:
    with pytest.raises(NoBaselineError) as caught:
        check_acceptable(OURS, {"passes": False, "verdict": "1 WRONG, 8 MATCH"})
    assert str(caught.value) == (
        "no baseline was made: what the subject reads is not right (1 WRONG, 8 MATCH); a wrong answer may be fast, so "
        "mend it first"
    )


def test_throttled_rounds_are_not_accepted() -> None:
    why = "the GPU was throttled (power cap)"
    spoilt = [replace(one, spoilt=(why,)) for one in OURS.rounds[:3]]
    check_acceptable(replace(OURS, rounds=(*spoilt[:2], *OURS.rounds[2:])), PARITY)
    with pytest.raises(NoBaselineError) as caught:
        check_acceptable(replace(OURS, rounds=(*spoilt, *OURS.rounds[3:])), PARITY)
    assert str(caught.value) == (
        f"no baseline was made: 9 of 12 rounds are good, 10 are needed ({why}); let the machine come to rest and run "
        "it again"
    )
