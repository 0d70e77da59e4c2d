"""Odd pages: their recordings hold for correct kernels, and each page shows the mistakes that it is made for."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageCms

from pytest_dsocr.compare.tolerances import BY_DTYPE
from pytest_dsocr.contract import PIXELS, inputs
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.config import Setup
from pytest_dsocr.records.reference_result import InputsDigest
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import engine_subject
from suites.contract.asked import recorded
from suites.contract.odd_pages import COLOURS, ODD_PAGES, RGB_FIRST, shared_checks
from tests.faults.outcome import of_catalogue
from tests.faults.suites import failure
from tests.faults.trial import loaded, planted

PAGES = json.loads(recorded("odd-pages.json", DEEPSEEK_OCR).read_text(encoding="utf-8"))["pages"]
SHOWS = {
    "turned": ("pixels.opened-no-orientation", "pixels.opened-on-white", "pixels.not-squashed"),
    "transparent": tuple(f"pixels.opened-on-{ground}" for ground in ("white", "black", "grey")),
    "16_bit": ("pixels.opened-wide",),
    "repeated": (
        "read.no-rule",
        "read.most-16",
        *(f"read.guard-{n}" for n in (4, 8, 16)),
        *(f"tokens.size-{n}" for n in (0, 3, 19, 21, 35)),
    ),
    "exactly_640": tuple(f"pixels.grid-{rule}" for rule in ("limit-639", "always", "always-first", "always-last")),
    "641_wide": tuple(f"pixels.grid-{rule}" for rule in ("limit-1024", "both-sides", "never")),
    "tie": tuple(f"pixels.grid-{rule}" for rule in ("tie-first", "tie-last", "most-2")),
    "near_square": ("pixels.grid-from-one",),
    "large_jpeg": ("pixels.opened-reduced",),
    **dict.fromkeys(("1_bit", "palette"), ("pixels.opened-late",)),
    "small": ("pixels.opened-enlarged",),
    "between_grids": tuple(f"pixels.grid-{rule}" for rule in ("log", "inverse", "rounded-1", "page-rounded-2", "ceil")),
}
"""Mistakes of the catalogue, by the page that shows them."""


def inverted(source: Any) -> Image.Image:
    page = Image.open(source)
    return load_image(ImageChops.invert(page) if page.mode == "CMYK" else page)


def by_profile(source: Any) -> Image.Image:
    page = Image.open(source)
    profile = ImageCms.ImageCmsProfile(BytesIO(page.info["icc_profile"]))
    return ImageCms.profileToProfile(page, profile, ImageCms.createProfile("sRGB"), outputMode="RGB") or page


MADE_FOR: list[tuple[str, str | Callable[[Any], Image.Image]]] = [
    *((name, mistake) for name, shown in SHOWS.items() for mistake in shown),
    *(("cmyk", inverted), ("with_profile", by_profile)),
]


def test_pixels_are_the_recorded_ones_with_any_pillow(tmp_path: Path) -> None:
    for name, page in ODD_PAGES.items():
        case = page.case(name, tmp_path, DEEPSEEK_OCR)
        seen = InputsDigest.of(
            DEEPSEEK_OCR.prepare(case.page, case.prompt, case.preset, resolve(MINI).tokenizer).tensors
        )
        assert {what: getattr(seen, what) for what in PIXELS} == {what: PAGES[name][what] for what in PIXELS}, name


@pytest.mark.parametrize(
    ("dtype", "attention"), [("float32", "sdpa"), pytest.param("bfloat16", "eager", marks=pytest.mark.dsocr_slow)]
)
def test_correct_kernels_read_what_is_recorded(dtype: str, attention: str, tmp_path: Path) -> None:
    subject = CheckedSubject(engine_subject(Setup(MINI, "cpu", dtype, attention)))
    read = {name: subject.read(page.case(name, tmp_path, DEEPSEEK_OCR)) for name, page in ODD_PAGES.items()}
    assert read == {name: page["text"] for name, page in PAGES.items()}
    assert min(page["margin_ulps"] for page in PAGES.values()) > BY_DTYPE["bfloat16"].ties


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("name", "mistake"), MADE_FOR)
def test_read_alone_it_shows_what_it_is_made_for(
    name: str, mistake: str | Callable[[Any], Image.Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ODD_PAGES[name].case(name, tmp_path, DEEPSEEK_OCR)
    if callable(mistake):
        monkeypatch.setattr(inputs, "load_image", mistake)
    with planted(of_catalogue((mistake,))[mistake]) if isinstance(mistake, str) else nullcontext(loaded()) as subject:
        assert CheckedSubject(subject).read(case) != PAGES[name]["text"]


def test_a_check_is_what_all_wrong_pages_share() -> None:
    assert shared_checks(["palette", "1_bit"]) == [RGB_FIRST]
    assert shared_checks(["turned", "palette"]) == [COLOURS], "indices of a palette are taken for levels"
    assert shared_checks(["exactly_640", "near_square", "small"]) == shared_checks(["plain", "tie"]) == []


def test_the_suite_fails_over_it_at_the_page_that_is_made_for_it() -> None:
    found = failure(of_catalogue(("GRD-10",))["GRD-10"], [suite := "suites/contract/test_odd_pages.py"])
    assert found is not None
    assert found.first == f"{suite}::test_it_reads_as_the_vendors_code[exactly_640]"
