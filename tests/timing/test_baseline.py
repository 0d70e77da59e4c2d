"""Baselines: found again where all is equal, and refused where anything differs; snapshots pin the messages."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.base.files import seal
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.plugin.perf_run import exact_comparisons
from pytest_dsocr.timing.baseline import (
    Baseline,
    NoBaselineError,
    check_right,
    check_rounds,
    find,
    find_counts,
    has_any,
)
from pytest_dsocr.timing.identity import PageSetting, identity_of
from pytest_dsocr.timing.rounds import Measured
from pytest_dsocr.timing.run import PerfRun
from tests.timing.made import IDENTITY, PARITY, PLACE, SHIPPED, identity, measured, shipped_baseline

DAYS = 180
OURS = measured({"decode": [15.0 + k / 7 for k in range(12)], "page": [97.0] * 12}, {"tokens.output": 64})


def made(days_ago: int = 0, **parts: Any) -> Baseline:
    day = date.today() - timedelta(days=days_ago)
    own = {**vars(OURS), "identity": identity(**parts)}
    return Baseline(**own, parity=PARITY, made=day, command="pytest it", commit="cd" * 20)


def refusal(folder: Path, **parts: Any) -> str:
    """Return the message that refuses a run of ``identity(**parts)``."""
    with pytest.raises(NoBaselineError) as caught:
        find([folder], identity(**parts), DAYS)
    return str(caught.value).replace(str(folder), "FOLDER")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a baseline of ``IDENTITY``, in ``tmp_path``."""
    return made().write(tmp_path)


def test_what_is_written_is_found_again_to_the_bit_whatever_the_package_the_commit_and_the_name(
    tmp_path: Path, path: Path
) -> None:
    assert path == tmp_path / PLACE
    found = find([tmp_path / "none", tmp_path], IDENTITY, DAYS)
    assert found == made()
    assert found.wall_ms("decode") == OURS.wall_ms("decode")
    assert find([tmp_path], identity(name="HEAD", commit="", versions={"pytest-dsocr": "9"}), DAYS) == made()


def test_the_vendors_code_is_one_subject_in_whichever_folder() -> None:
    page = PageSetting("form", "ab", "free", "tiny", 64)
    found = [identity_of(name, {}, page)["subject"] for name in ("vendor:here", "vendor:there/too", "my:Ocr")]
    assert found == ["vendor", "vendor", "my:Ocr"]


DIFFERENT: dict[str, Any] = {
    "gpu": {"machine": {"gpu": "NVIDIA B200"}},
    "gpus": {"machine": {"gpus": 2}},
    "version": {"versions": {"torch": "2.12.0"}},
    "package": {"versions": {"triton": "3"}},
    "ceiling": {"page": {"max_new_tokens": 8}},
    "many": {"machine": {"driver": "1", "cores": 2}, "versions": {"torch": "1", "python": "1"}, "subject": "my:Ocr"},
}


@pytest.mark.parametrize("parts", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.usefixtures("path")
def test_what_differs_from_the_nearest_is_named(tmp_path: Path, parts: Any, snapshot: SnapshotAssertion) -> None:
    made(machine={"gpu": "NVIDIA A100", "driver": "2", "cores": 3}, subject="other").write(tmp_path)
    assert refusal(tmp_path, **parts) == snapshot


def test_none_and_one_that_is_too_old_or_yet_to_come_are_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    none = refusal(tmp_path)
    made(days_ago=DAYS).write(tmp_path)
    assert find([tmp_path], IDENTITY, DAYS).age_days == DAYS
    made(days_ago=DAYS + 1).write(tmp_path)
    too_old = refusal(tmp_path)
    replace(made(), made=date(2999, 1, 1)).write(tmp_path)
    assert [none, too_old, refusal(tmp_path)] == snapshot


@pytest.mark.parametrize("place", [0, 5, 400, -40, -1])
def test_a_single_bit_is_seen(tmp_path: Path, path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    assert refusal(tmp_path).startswith(f"FOLDER/{PLACE} is damaged: its ")
    assert has_any([tmp_path], IDENTITY["machine"]), "it was promised all the same"


def test_a_damaged_one_of_another_page_is_mentioned_only_where_a_page_has_none(
    tmp_path: Path, path: Path, snapshot: SnapshotAssertion
) -> None:
    made(page={"name": "a first one"}).write(tmp_path).write_bytes(b'{\n "format": 1')
    assert find([tmp_path], IDENTITY, DAYS) == made()
    path.write_bytes(path.read_bytes()[:300])
    without = refusal(tmp_path, page={"name": "other"})
    made(page={"name": "third"}).write(tmp_path)
    assert [without, refusal(tmp_path, page={"name": "other"})] == snapshot


@pytest.mark.usefixtures("path")
def test_a_machine_has_one_or_has_none_and_other_files_are_none(tmp_path: Path) -> None:
    machine = IDENTITY["machine"]
    assert has_any([tmp_path / "none", tmp_path], {**machine, "driver": "1"})
    assert not has_any([tmp_path], {**machine, "gpus": 4})
    assert not has_any([tmp_path], {"cpu": "A CPU", "cores": 2})
    (folder := tmp_path / "none" / "nvidia-h200").mkdir(parents=True)
    folder.joinpath("calibration.json").write_bytes(seal({"format": 1}))
    folder.joinpath("figures.json").write_text('{\n "device": "NVIDIA H200"\n}\n')
    assert not has_any([tmp_path / "none"], machine)


def on_another_host(**exact: int) -> PerfRun:
    """Return a run of the engine at full size on another host's H200, and the shipped baselines that it finds."""
    own = shipped_baseline()
    newer = {**own.identity["machine"], "driver": "590.1"}
    machine = {**newer, "cores": 24}
    here = {**own.identity, "machine": machine, "setup": {**own.identity["setup"], "threads": 4}}
    with pytest.raises(NoBaselineError, match=r"has machine\.cores 32, here 24; machine\.driver 580.*, here 590"):
        find([SHIPPED], here, 1e9)
    assert [has_any([SHIPPED], one) for one in (machine, newer)] == [False, True]
    assert find_counts([SHIPPED], {**here, "machine": {**machine, "gpu": "NVIDIA H100"}}) is None
    assert find_counts([SHIPPED], {**here, "versions": {**own.identity["versions"], "torch": "2.12.0"}}) is None
    found = find_counts([SHIPPED], here)
    assert found == own
    busy = {"decode.busy_us": 2 * own.exact["decode.busy_us"]}
    return PerfRun(Measured(here, {**own.exact, **busy, **exact}, ()), counts=found)


def test_the_counts_of_a_shipped_baseline_hold_on_another_host_and_a_changed_one_fails_there() -> None:
    equal = [*exact_comparisons(on_another_host())]
    assert {one.verdict for one in equal} == {Verdict.MATCH}
    assert {"perf/decode.operators", "perf/decode.kernels", "perf/decode.bytes"} <= {one.what for one in equal}
    assert not [one.what for one in equal if one.what.endswith(("_us", "peak_bytes"))], "these are not exact"
    found = exact_comparisons(on_another_host(**{"decode.operators": 1499}))
    [wrong] = [one for one in found if one.verdict is Verdict.WRONG]
    told = "machine.cores 32, here 24; machine.driver 580.159.04, here 590.1; setup.threads 8, here 4"
    assert wrong.measured == f"1499; the counts of 2026-11-22, which hold here too ({told}), have 1498"


def test_a_wrong_output_and_throttled_rounds_are_not_accepted(snapshot: SnapshotAssertion) -> None:
    spoilt = [replace(one, spoilt=("the GPU was throttled (power cap)",)) for one in OURS.rounds[:3]]
    check_rounds(replace(OURS, rounds=(*spoilt[:2], *OURS.rounds[2:])))
    check_right(PARITY)
    with pytest.raises(NoBaselineError) as wrong:
        check_right({"passes": False, "verdict": "1 WRONG, 8 MATCH"})
    with pytest.raises(NoBaselineError) as few:
        check_rounds(replace(OURS, rounds=(*spoilt, *OURS.rounds[3:])))
    assert [str(wrong.value), str(few.value)] == snapshot
