"""FLOPs of a live vendor's code against arithmetic: the stage that costs more is named, the vendor's own are right."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import suites
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN, home_names

SUITE = Path(suites.__file__).parent / "reference" / "test_flops.py"
LAST = "        return super().forward(sam)\n"
ONE_MORE = "        out: Tensor = super().forward(sam)\n        return self.transformer.layers[-1](out)\n"


@pytest.mark.dsocr_slow
def test_the_stage_that_costs_more_is_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in decodes as the engine does, which computes the last token's logits alone."""
    monkeypatch.setenv("DSOCR_VENDOR_ENV", sys.prefix)
    shutil.copytree(STAND_IN, "code")
    hold_live(pytester, "code").stdout.fnmatch_lines(["*: 4 WRONG, 3 MATCH"])
    encoders = Path("code", "deepencoder.py")
    text = encoders.read_text(encoding="utf-8")
    assert text.count(LAST) == 1
    encoders.write_text(text.replace(LAST, ONE_MORE), encoding="utf-8")
    result = hold_live(pytester, "code")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["flops/clip/tiny-tiny-markdown: * FLOPs (+*%); expected 14,942,720, as computed*"])
    result.stdout.fnmatch_lines(["*: 5 WRONG, 2 MATCH"])
    left = hold_live(pytester, "code", "--dsocr-reference-attention=flash_attention_2", "--dsocr-no-skip")
    left.assert_outcomes(failed=1)
    left.stdout.fnmatch_lines(["*torch does not count all FLOPs of attention flash_attention_2; use eager"])


@pytest.mark.skipif("vendor" not in home_names(), reason="set DSOCR_VENDOR and DSOCR_VENDOR_ENV")
@pytest.mark.parametrize(("pages", "preset"), [(("landscape",), "gundam"), (("tiny", "halves"), "tiny")])
def test_the_vendors_code_costs_what_arithmetic_says(
    pages: tuple[str, ...], preset: str, pytester: pytest.Pytester
) -> None:
    """With crops and without, and of a page that its gate shuts out."""
    hold_live(pytester, os.environ["DSOCR_VENDOR"], pages=pages, preset=preset).assert_outcomes(passed=1)


def hold_live(
    pytester: pytest.Pytester,
    vendor: str,
    *options: str,
    pages: tuple[str, ...] = ("tiny", "halves"),
    preset: str = "tiny",
) -> pytest.RunResult:
    sides = [f"--dsocr-reference={vendor}", "--dsocr-checkpoint=synthetic:tiny", "--dsocr-max-new-tokens=3"]
    how = [f"--dsocr-pages={write_page(page, pytester.path)}" for page in pages]
    return pytester.runpytest_inprocess(str(SUITE), *sides, *how, f"--dsocr-presets={preset}", *options)
