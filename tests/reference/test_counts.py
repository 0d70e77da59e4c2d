"""FLOPs beside recordings: what is kept, what is refused, and what a live vendor's are held against."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import suites
from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.files import seal, unseal
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.counts import CountedCase, Counts, counting, find_counted
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recording import RecordedReference, Recording
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN
from tests.reference.replay import MADE, Made, content_of, record

HOME = "synthetic-tiny/cpu-float32-eager"
FLOPS = {"sam": 10**15 + 1, "clip": 5, "projector": 3, "prefill": 4, "decode": 2}
ON_A_GPU = replace(
    MADE, device="nvidia-h200", dtype="bfloat16", resampling="feed", versions={"torch": "2.11.0"}, overrides=()
)
OTHER_FILES = replace(MADE, vendor_sha256={**MADE.vendor_sha256, "deepencoder.py": "ff" * 32})
OTHERWISE = {
    "other files": (OTHER_FILES, r"vendor_sha256\.deepencoder\.py: f{16} and (2b){8}"),
    "other weights": (replace(MADE, checkpoint_sha256="c1" * 32), "checkpoint_sha256: (c1){8} and (c0){8}"),
    "another attention": (replace(MADE, attention="flash"), "attention: flash and eager"),
}
RECORD = [
    *("vendor", "record", "code", "tiny.png", "--checkpoint", "synthetic:tiny", "--golden", "golden/vendor"),
    *("--presets", "tiny", "--max-new-tokens", "3"),
]
LAST = "        return super().forward(sam)\n"
ONE_MORE = "        out: Tensor = super().forward(sam)\n        return self.transformer.layers[-1](out)\n"


@pytest.fixture
def golden(made: Made, tmp_path: Path) -> Path:
    """A folder with a recording, of whose cases the first two are counted."""
    record(tmp_path / "golden", made.reference(), made.cases)
    return tally(tmp_path / "golden", made.cases[:2])


def tally(golden: Path, cases: list[Case], made_by: Provenance = MADE, **options: bool) -> Path:
    with counting(golden / HOME.partition("/")[0], made_by) as target:
        for case in target.missing(cases, **options):
            target.add(case, FLOPS)
    return golden


def file_in(golden: Path) -> Path:
    return golden / "synthetic-tiny" / "flops-eager.json"


def opened(golden: Path) -> RecordedReference:
    return RecordedReference(Recording.open(golden / HOME))


def test_what_is_counted_is_given_whatever_the_ceiling(made: Made, golden: Path) -> None:
    for case in made.cases[:2]:
        assert opened(golden).flops(case) == FLOPS
        assert opened(golden).flops(replace(case, max_new_tokens=1)) == FLOPS


def test_what_is_not_counted_is_said(made: Made, golden: Path) -> None:
    case = made.cases[2]
    with pytest.raises(NotRecordedError, match=rf"synthetic-tiny holds no FLOPs of {case.id}; count them with: dsocr"):
        opened(golden).flops(case)
    file_in(golden).unlink()
    with pytest.raises(NotRecordedError, match=f"holds no FLOPs of {made.cases[0].id}; .* the vendor's folder"):
        opened(golden).flops(made.cases[0])


def test_counts_of_another_device_dtype_and_pillow_stand(made: Made, golden: Path) -> None:
    before = file_in(golden).read_bytes()
    tally(golden, made.cases[:2], ON_A_GPU)
    assert file_in(golden).read_bytes() == before, "these are counted already"
    tally(golden, made.cases, ON_A_GPU)
    assert opened(golden).flops(made.cases[2]) == FLOPS
    counted = Counts.open(file_in(golden)).cases
    assert [counted[case.id].origin for case in made.cases] == [MADE, MADE, ON_A_GPU]


def test_again_counts_the_named_ones_anew(made: Made, golden: Path) -> None:
    later = replace(MADE, date="2026-02-03")
    tally(golden, made.cases[:1], later, again=True)
    counted = Counts.open(file_in(golden)).cases
    assert [counted[case.id].origin.date for case in made.cases[:2]] == ["2026-02-03", MADE.date]


@pytest.mark.parametrize("name", OTHERWISE)
def test_stale_counts_are_refused_and_given_up_by_the_next_count(name: str, made: Made, golden: Path) -> None:
    made_by, why = OTHERWISE[name]
    forge(file_in(golden), lambda content: content.update(made=[made_by.to_json()]))
    with pytest.raises(
        ReferenceFaultError,
        match=rf"flops-eager\.json holds FLOPs of {made.cases[0].id} that were counted otherwise than .*{HOME} was "
        rf"made \({why}\); count them anew with: dsocr vendor record",
    ):
        opened(golden).flops(made.cases[0])
    with counting(golden / "synthetic-tiny", MADE) as target:
        [note] = target.notes
        assert note.startswith("FLOPs of 2 cases counted before are given up: ")
        assert target.missing(made.cases) == made.cases


def test_a_live_reference_of_other_files_is_held_against_them_and_one_of_other_weights_is_not(
    made: Made, golden: Path
) -> None:
    empty, case = golden / "empty", made.cases[0]
    found = find_counted(case, [empty, golden], MADE.checkpoint_sha256, "eager")
    assert found is not None
    assert found.flops == FLOPS
    assert find_counted(case, [golden], "c1" * 32, "eager") is None
    assert find_counted(case, [golden], MADE.checkpoint_sha256, "flash_attention_2") is None
    assert find_counted(made.cases[2], [golden], MADE.checkpoint_sha256, "eager") is None


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a file's content, and seal it again."""
    content = unseal(path.read_bytes())
    del content["sha256"]
    change(content)
    path.write_bytes(seal(content))


@pytest.fixture
def _started_at_once(warm: None, warm_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOCR_VENDOR_ENV", str(warm_environment))


@pytest.fixture
def counted(_started_at_once: None, pytester: pytest.Pytester) -> CountedCase:
    """What ``dsocr vendor record`` counts of the stand-in in ``code``, in ``golden``."""
    shutil.copytree(STAND_IN, "code")
    write_page("tiny", pytester.path)
    assert main(RECORD) == 0
    return Counts.open(file_in(Path("golden/vendor"))).cases["tiny-tiny-markdown"]


def test_flops_are_recorded_and_counted_anew_without_touching_the_recording(counted: CountedCase) -> None:
    recorded = content_of(Path("golden/vendor", HOME))
    assert recorded
    file_in(Path("golden/vendor")).unlink()
    assert main([*RECORD, "--only-flops"]) == 0
    again = Counts.open(file_in(Path("golden/vendor"))).cases["tiny-tiny-markdown"]
    assert again.flops == counted.flops
    assert {*again.flops} == {"sam", "clip", "projector", "prefill", "decode"}
    assert again.origin.command.endswith(" --only-flops")
    assert content_of(Path("golden/vendor", HOME)) == recorded


def test_a_vendor_that_runs_one_more_layer_is_named_by_its_stage(
    counted: CountedCase, pytester: pytest.Pytester
) -> None:
    assert hold_live(pytester).ret == pytest.ExitCode.OK
    encoders = Path("code", "deepencoder.py")
    text = encoders.read_text(encoding="utf-8")
    assert text.count(LAST) == 1
    encoders.write_text(text.replace(LAST, ONE_MORE), encoding="utf-8")
    result = hold_live(pytester)
    result.assert_outcomes(failed=1)
    recorded = f"{counted.flops['clip']:,} are recorded, as counted"
    result.stdout.fnmatch_lines([f"flops/clip/tiny-tiny-markdown: * FLOPs (+*%); {recorded}*", "*: 1 WRONG, 4 MATCH"])


def test_a_run_of_which_nothing_is_counted_says_how_to(counted: CountedCase, pytester: pytest.Pytester) -> None:
    file_in(Path("golden/vendor")).unlink()
    result = hold_live(pytester, "--dsocr-no-skip")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*of no case of this run are FLOPs recorded; * dsocr vendor record --only-flops"])
    hold_live(pytester, "--dsocr-no-skip", "--dsocr-may-miss=recording").assert_outcomes(skipped=1)


def hold_live(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Hold the stand-in in ``code`` against what is counted in ``golden``."""
    suite = Path(suites.__file__).parent / "reference" / "test_flops.py"
    sides = ["--dsocr-reference=code", "--dsocr-checkpoint=synthetic:tiny", "--dsocr-golden=golden"]
    pages = ["--dsocr-pages=tiny.png", "--dsocr-presets=tiny", "--dsocr-max-new-tokens=3"]
    return pytester.runpytest_inprocess(str(suite), *sides, *pages, *options)
