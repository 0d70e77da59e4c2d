"""FLOPs beside recordings: what is kept, what is refused, and how a live vendor's are compared with them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import suites
from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.files import seal, unseal
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.counts import Counts, counting, find_counted
from pytest_dsocr.reference.protocol import ReferenceFaultError
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN
from tests.reference.replay import MADE, Made, content_of

HOME = "synthetic-tiny/cpu-float32-eager"
FLOPS = {"sam": 10**15 + 1, "clip": 5, "projector": 3, "prefill": 4, "decode": 2}
ON_A_GPU = replace(
    MADE, device="nvidia-h200", dtype="bfloat16", resampling="feed", versions={"torch": "2.11.0"}, overrides=()
)
OTHER_FILES = replace(MADE, vendor_sha256={**MADE.vendor_sha256, "deepencoder.py": "ff" * 32})
RECORD = [
    *("vendor", "record", "code", "tiny.png", "--checkpoint", "synthetic:tiny", "--golden", "golden/vendor"),
    *("--presets", "tiny", "--max-new-tokens", "3"),
]
LAST = "        return super().forward(sam)\n"
ONE_MORE = "        out: Tensor = super().forward(sam)\n        return self.transformer.layers[-1](out)\n"


def file_in(golden: Path) -> Path:
    return golden / "synthetic-tiny" / "flops-eager.json"


def tally(golden: Path, cases: list[Case], made: Provenance = MADE) -> Counts:
    """Count those of ``cases`` that are not counted, as ``dsocr vendor record`` does."""
    with counting(golden / "synthetic-tiny", made.attention) as counts:
        counts.discard_others(made)
        for case in counts.missing(cases):
            counts.add(case, made, FLOPS)
    return Counts.open(file_in(golden))


def test_what_is_counted_stands_for_every_ceiling_device_dtype_and_pillow(made: Made, tmp_path: Path) -> None:
    assert tally(tmp_path, made.cases[:2]).cases.keys() == {case.id for case in made.cases[:2]}
    before = file_in(tmp_path).read_bytes()
    tally(tmp_path, [replace(case, max_new_tokens=1) for case in made.cases[:2]], ON_A_GPU)
    assert file_in(tmp_path).read_bytes() == before, "these are counted already"
    counted = tally(tmp_path, made.cases, ON_A_GPU).cases
    assert [counted[case.id].origin for case in made.cases] == [MADE, MADE, ON_A_GPU]
    assert {**counted[made.cases[2].id].flops} == FLOPS
    found = find_counted(made.cases[0], [tmp_path / "empty", tmp_path], MADE.checkpoint_sha256, "eager")
    assert found is not None
    assert found.flops == FLOPS
    assert find_counted(made.cases[0], [tmp_path], "c1" * 32, "eager") is None
    assert find_counted(made.cases[0], [tmp_path], MADE.checkpoint_sha256, "flash_attention_2") is None


@pytest.mark.parametrize("other", [OTHER_FILES, replace(MADE, checkpoint_sha256="c1" * 32)])
def test_what_was_counted_otherwise_is_given_up(other: Provenance, made: Made, tmp_path: Path) -> None:
    tally(tmp_path, made.cases[:2], other)
    counts = Counts.open(file_in(tmp_path))
    assert counts.discard_others(MADE).startswith("FLOPs of 2 cases counted before are given up: ")
    assert counts.missing(made.cases) == made.cases
    assert counts.discard_others(MADE) == ""
    content = unseal(file_in(tmp_path).read_bytes())
    content["cases"][made.cases[0].id]["made"] = 1
    file_in(tmp_path).write_bytes(seal({name: value for name, value in content.items() if name != "sha256"}))
    with pytest.raises(ReferenceFaultError, match="names a making that it does not hold"):
        Counts.open(file_in(tmp_path))


@pytest.mark.usefixtures("warm")
def test_what_is_recorded_is_what_a_live_vendor_is_compared_with(
    warm_environment: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is counted anew without touching the recording."""
    monkeypatch.setenv("DSOCR_VENDOR_ENV", str(warm_environment))
    shutil.copytree(STAND_IN, "code")
    write_page("tiny", pytester.path)
    assert main(RECORD) == 0
    counted = Counts.open(file_in(Path("golden/vendor"))).cases["tiny-tiny-markdown"]
    recorded = content_of(Path("golden/vendor", HOME))
    assert recorded
    assert hold_live(pytester).ret == pytest.ExitCode.OK
    file_in(Path("golden/vendor")).unlink()
    result = hold_live(pytester, "--dsocr-no-skip")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*of no case of this run are FLOPs recorded; * dsocr vendor record --only-flops"])
    assert main([*RECORD, "--only-flops"]) == 0
    again = Counts.open(file_in(Path("golden/vendor"))).cases["tiny-tiny-markdown"]
    assert again.flops == counted.flops
    assert {*again.flops} == {"sam", "clip", "projector", "prefill", "decode"}
    assert again.origin.command.endswith(" --only-flops")
    assert content_of(Path("golden/vendor", HOME)) == recorded

    encoders = Path("code", "deepencoder.py")
    text = encoders.read_text(encoding="utf-8")
    assert text.count(LAST) == 1
    encoders.write_text(text.replace(LAST, ONE_MORE), encoding="utf-8")
    result = hold_live(pytester)
    result.assert_outcomes(failed=1)
    message = f"{counted.flops['clip']:,} are recorded, as counted"
    result.stdout.fnmatch_lines([f"flops/clip/tiny-tiny-markdown: * FLOPs (+*%); {message}*", "*: 1 WRONG, 4 MATCH"])


def hold_live(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Hold the stand-in in ``code`` against what is counted in ``golden``."""
    suite = Path(suites.__file__).parent / "reference" / "test_flops.py"
    sides = ["--dsocr-reference=code", "--dsocr-checkpoint=synthetic:tiny", "--dsocr-golden=golden"]
    pages = ["--dsocr-pages=tiny.png", "--dsocr-presets=tiny", "--dsocr-max-new-tokens=3"]
    return pytester.runpytest_inprocess(str(suite), *sides, *pages, *options)
