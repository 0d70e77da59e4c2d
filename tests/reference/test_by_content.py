"""A checkpoint is its content: recordings, snapshots and limits are those of a copy as well, whatever it is called."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.cases.limits import key_of
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.observation.case import Case
from pytest_dsocr.reference.opening import Wanted, open_recorded
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.recording import find_recordings
from pytest_dsocr.subjects.protocol import Setup
from tests.engine.written import write_synthetic
from tests.recordings import FOLDER, find_recording
from tests.reference.replay import MADE, Made, Replay, record

HOME = "synthetic-tiny/cpu-float32-eager"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded checkpoint, byte for byte, as a snapshot in a hub's cache: its folder is called by a revision."""
    folder = tmp_path_factory.mktemp("hub") / "models--someone--mini-ocr" / "snapshots" / "9f30c71f441d"
    return Path(shutil.copytree(MINI_FOLDER, folder))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Other weights under the embedded checkpoint's name."""
    write_synthetic("tiny", tmp_path / "mini", torch.float32, seed=9)
    return tmp_path / "mini"


def test_a_copy_has_the_recordings_of_the_original(copy: Path) -> None:
    wanted = Wanted(resolve(copy))
    assert find_recording(FOLDER, wanted.key, resampling()).provenance.checkpoint == "mini"
    assert open_recorded([FOLDER], wanted).provenance.checkpoint_sha256 == resolve("mini").sha256


def test_a_copy_has_the_originals_key_and_a_name_of_its_own(copy: Path) -> None:
    key = key_of(Setup(str(copy)))
    assert key == key_of(Setup("mini"))
    assert key != key_of(Setup("mini", dtype="bfloat16"))
    assert (key.checkpoint, str(key)) == ("someone/mini-ocr", "someone-mini-ocr/cpu-float32-eager")


def test_other_weights_of_the_same_name_are_told_by_their_content(other: Path) -> None:
    key = Wanted(resolve(other)).key
    own, shipped = key.checkpoint_sha256[:12], resolve("mini").sha256[:12]
    with pytest.raises(ReferenceFaultError) as caught:
        find_recording(FOLDER, key, resampling())
    told = str(caught.value)
    assert f"holds no recording of mini/cpu-float32-eager (checkpoint {own}), but " in told
    assert f"mini/cpu-float32-eager (checkpoint {shipped})" in told


@pytest.fixture(scope="module")
def live(made: Made) -> tuple[Replay, list[Case]]:
    """A reference of three cases."""
    return made.reference(), made.cases


def test_a_copy_is_recorded_into_the_originals_recording(live: tuple[Replay, list[Case]], tmp_path: Path) -> None:
    reference, cases = live
    record(tmp_path, reference, cases[:1])
    of_copy = replace(reference, provenance=replace(MADE, checkpoint="a copy"))
    with recorder(tmp_path, of_copy.provenance) as target:
        assert (target.folder, target.notes) == (tmp_path / HOME, [])
        for case in target.missing(cases):
            target.add(case, of_copy.observe(case))
        recording = target.publish()
    assert set(recording.cases) == {case.id for case in cases}
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["synthetic-tiny"]


def places(live: tuple[Replay, list[Case]], folder: Path, **shipped: Any) -> list[Path]:
    """Give two folders of recordings, of the first case and of all others."""
    reference, cases = live
    record(folder / "own", reference, cases[:1])
    record(folder / "shipped", replace(reference, provenance=replace(MADE, **shipped)), cases[1:])
    return [folder / "own", folder / "shipped"]


class Tiny:
    """A checkpoint of the recordings' content."""

    label, sha256 = "tiny", MADE.checkpoint_sha256


def opened(places: list[Path]) -> Any:
    wanted: Any = Wanted(Tiny())  # type: ignore[arg-type]
    return open_recorded(places, wanted)


def test_cases_that_ones_own_recording_lacks_are_the_shipped_ones(
    live: tuple[Replay, list[Case]], tmp_path: Path
) -> None:
    found = places(live, tmp_path)
    reference = opened(found)
    assert reference.recording.folder == found[0] / HOME
    assert [reference.observe(case).case_id for case in live[1]] == [case.id for case in live[1]]
    assert opened(found[1:]).recording.folder == found[1] / HOME
    with pytest.raises(NotRecordedError):
        opened(found[:1]).observe(live[1][1])
    [own, shipped] = find_recordings(found, MADE.key, MADE.resampling)
    assert (own.folder, shipped.folder) == (found[0] / HOME, found[1] / HOME)


@pytest.mark.parametrize(
    "other", [{"vendor_sha256": {"modeling_deepseekocr.py": "9c" * 32}}, {"dtype": "bfloat16"}, {"resampling": "feed"}]
)
def test_but_not_those_that_were_made_otherwise(
    live: tuple[Replay, list[Case]], tmp_path: Path, other: Mapping[str, Any]
) -> None:
    reference = opened(places(live, tmp_path, **other))
    assert reference.behind == ()
    with pytest.raises(NotRecordedError, match=live[1][1].id):
        reference.observe(live[1][1])
