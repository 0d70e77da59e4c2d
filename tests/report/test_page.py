"""The page of a run: nothing keeps a reader out, and its plots show what the result has."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.words import MARGIN
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.describe.description import Description, ErrorPanel
from pytest_dsocr.describe.error_digits import MOST_STEPS, digit, digits, error_of
from pytest_dsocr.describe.error_map import error_map
from pytest_dsocr.describe.layout import ImageTokens, pair_of
from pytest_dsocr.history.page import html as history_page
from pytest_dsocr.history.scoreboard import ScoreboardEntry
from pytest_dsocr.history.scoreboard_page import html as scoreboard_page
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr2 import FAMILY as OCR2
from pytest_dsocr.report.case_result import FurtherResult
from pytest_dsocr.report.plot import heat_of, plot_of
from pytest_dsocr.report.strip import CARRIED, boxes_of, line_of, strips
from pytest_dsocr.report.terminal import Summary
from pytest_dsocr.report.views import html, markdown
from tests.history.test_history import plan
from tests.report.made import MATCH, WRONG, case_payload, night, payload, result, run_payload
from tests.report.markup import Page
from tests.report.test_views import document

TEXTS = ("ink", "soft", "good", "bad", "noted", "link")
GROUNDS = ("ground", "sheet")
LEAST_CONTRAST = 4.5
SPELT_STEPS = Comparison("logits", Verdict.WRONG, "at step 1", 0.5, allowed=1e-4, along=digits([1e-7, 0.5]))
DESCRIBED = Description("k", "t", 1.0, places=(ErrorPanel("the page", ("00a", "0kz")),))
CASE = case_payload(
    "a", MATCH, replace(WRONG, allowed=1e-4), SPELT_STEPS, passes=False, first_wrong="clip.page", described=DESCRIBED
)
RELEASE = ScoreboardEntry.of(night(("failed", payload(MATCH, WRONG, case=CASE))), "it", "It", "it 1")
PAGES = {
    "places": lambda: html(result(("failed", payload(WRONG, case=CASE, run=run_payload()))).document),
    "failing": lambda: html(document("breaks once, proven")),
    "text": lambda: html(document("text alone")),
    "slower": lambda: html(document("slower")),
    "nights": lambda: history_page(plan("..XX-" * 3), []),
    "scoreboard": lambda: scoreboard_page(
        [RELEASE, replace(RELEASE, version="it 2", stages={"CLIP": "="})], *2 * [Path()]
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_accessibility_fault(name: str) -> None:
    page = PAGES[name]()
    found = Page(page)
    headings = [int(tag[1:]) for tag, _ in found.elements if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings)), "no level is left out"
    ids = [one["id"] for _, one in found.elements if "id" in one]
    assert len(ids) == len({*ids})
    assert [one for one in found.all("html") if one.get("lang")]
    assert found.all("title")
    assert found.all("main")
    assert all(one.get("alt") for one in found.all("img"))
    named = {*re.findall(r'<label [^>]*for="([^"]+)"[^>]*>\s*[^\s<]', page)}
    assert {one["id"] for one in found.all("input")} <= named, "each control has a label"
    assert all(
        (one.get("role") == "img" and one.get("aria-label")) or one.get("aria-hidden") for one in found.all("svg")
    )
    assert all(one.get("aria-label") for _, one in found.elements if "tabindex" in one), "what scrolls has a name"
    assert {one["href"] for one in found.all("a") if (one["href"] or "")[:1] == "#"} <= {f"#{one}" for one in ids}
    assert all(one.get("scope") for one in found.all("th"))
    assert {"script", "link", "iframe"}.isdisjoint(tag for tag, _ in found.elements)
    assert ":focus-visible" in page
    assert "prefers-color-scheme" in page
    assert "@media print" in page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_text_stands_out_from_what_is_behind_it(scheme: str) -> None:
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{([^}]*)\}", PAGES["text"]())
    )
    colours = light if scheme == "light" else dark
    assert {*light} == {*dark}
    own = [(name, name.removesuffix("-ink")) for name in colours if name.endswith("-ink")]
    pairs = [*own, *((text, ground) for text in TEXTS for ground in GROUNDS)]
    assert len(own) >= 6
    assert not [pair for pair in pairs if contrast(*(colours[name] for name in pair)) < LEAST_CONTRAST]


def contrast(text: str, ground: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""
    low, high = sorted(map(_luminance, (text, ground)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_plot_has_each_tensor_and_step_with_its_limit_and_what_is_correct() -> None:
    plot = plot_of(CASE, run_payload())
    assert plot is not None
    [line] = plot.lines
    [clip] = line.points
    limits = [band.y for band in plot.limits]
    assert (clip.verdict, len(limits), plot.steps.count(" L")) == ("WRONG", 2, 1)
    assert clip.y < limits[0] < plot.correct[0].y < plot.floor, "larger errors are higher"
    assert plot_of(case_payload("b", MATCH), None) is None


def test_errors_fit_into_a_character_each() -> None:
    for error in (1e-7, 3.3e-4, 0.5, 5.0):
        assert error * 0.999 <= error_of(digit(error)) <= error * 1.8
    assert [digit(one) for one in (0.0, float("nan"), float("inf"), 1e9)] == ["0", "z", "z", "z"]
    assert len(digits([0.1] * 8192)) <= MOST_STEPS
    assert "z" in digits([0.0] * 5000 + [float("inf")]), "the largest of neighbours is kept"


@pytest.mark.parametrize(
    ("shape", "crops", "how", "at", "cell"),
    [
        ((6, 4, 4, 8), (2, 3), {"channels_last": True, "is_of_crops": True}, (3, 1, 2), (1 * 4 + 1, 1 * 4 + 2)),
        ((1, 17, 8), (1, 1), {"channels_last": False}, (0, 1 + 4 + 2), (1, 2)),
        ((21, 8), (1, 1), {"channels_last": False}, (5 + 2,), (1, 2)),
        ((1, 3, 64, 64), (1, 1), {"channels_last": False}, (0, 0, 10, 20), (5, 10)),
    ],
)
def test_a_wrong_value_is_shown_at_its_place_on_the_page(
    shape: tuple[int, ...], crops: tuple[int, int], how: dict[str, bool], at: tuple[int, ...], cell: tuple[int, int]
) -> None:
    right = torch.ones(shape)
    wrong = right.clone()
    wrong[at] += 1
    pair = pair_of(wrong, right, channels_last=how["channels_last"])
    tokens = ImageTokens(crops, 0, 4, DEEPSEEK_OCR.layout)
    panel, *_ = error_map(pair, tokens, is_of_crops=how.get("is_of_crops", False))
    found = [(y, x) for y, row in enumerate(panel.rows) for x, one in enumerate(row) if one != "0"]
    assert found == [cell]


def test_a_wrong_channel_is_shown_among_all_channels() -> None:
    right = torch.ones(1, 16, 192)
    wrong = right.clone()
    wrong[..., 10] += 1
    tokens = ImageTokens((1, 1), 0, 4, DEEPSEEK_OCR.layout)
    strip = error_map(pair_of(wrong, right, channels_last=False), tokens, is_of_crops=False)[-1]
    assert strip.title == "channels 0 to 191, 3 in each field"
    assert [k for k, one in enumerate(strip.rows[0]) if one != "0"] == [10 // 3]


def test_tokens_are_laid_out_by_the_sides_of_their_views_and_logits_are_not() -> None:
    tokens = ImageTokens((2, 2), 10, 16, DEEPSEEK_OCR.layout)
    right = torch.ones(693, 4)
    wrong = right.clone()
    wrong[419] += 1
    pair = pair_of(wrong, right, channels_last=False, tokens=tokens)
    crops, page, _ = error_map(pair, tokens, is_of_crops=False)
    assert pair.meaning(419) == " (the ends of the crops' lines)"
    assert (len(crops.rows), len(crops.rows[0]), crops.rows[-1]) == (20, 21, "0" * 20 + digit(1.0))
    assert (len(page.rows), len(page.rows[0])) == (16, 17)
    of_logits = error_map(pair_of(wrong[:, 0], right[:, 0], channels_last=False), tokens, is_of_crops=False)
    assert [panel.title for panel in of_logits] == ["logits"]
    apart = replace(tokens, layout=OCR2.layout)
    assert (apart.crop_width, apart.count) == (10, 4 * 100 + 256 + 1)


def test_the_heat_map_says_in_words_what_its_colours_show() -> None:
    heat = heat_of(DESCRIBED)
    assert heat is not None
    [panel] = heat.panels
    assert "3 of 6 fields are equal" in panel.words
    assert "row 1, column 2" in panel.words
    assert sum(path.count("M") for _, path in panel.paths) == 3
    assert heat_of(replace(DESCRIBED, places=())) is None
    assert heat_of(None) is None


def test_a_strip_is_a_line_with_the_error_that_matters() -> None:
    assert [box.stage for box in boxes_of(CASE)] == ["tokenizer", "clip", "decode"]
    assert line_of(CASE) == "tok ✓ clip ✗ 7.1e-1 dec ↳"
    names = (
        "input_ids",
        "images_ori",
        *(stage.name for stage in DEEPSEEK_OCR.of_views),
        "vision_fusion",
        "prefill",
        "logits",
        "text",
    )
    whole = case_payload("w", *(replace(WRONG, what=name) for name in names), passes=False)
    assert line_of(whole) == "pre ✗ 7.1e-1 tok ↳ sam ↳ clip ↳ proj ↳ fus ↳ pref ↳ dec ↳ out ↳"
    assert len(line_of(whole)) + MARGIN <= 80
    alike = [case_payload(f"{name}{'x' * 40}", WRONG, passes=False, page=f"{name}.png") for name in "abc"]
    shown = [*strips([case_payload("right", MATCH, page="right.png"), *alike], 1)]
    assert shown == [("a +2", "clip ✗ 7.1e-1", True), ("", "and 1 case more", False)]


ALL = (MATCH, *(replace(WRONG, what=one) for one in ("sam.page", "clip.page", "vision_fusion", "prefill", "logits")))


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, "sam ✗ 7.1e-1 clip ↳ fus ↳ pref ↳ dec ↳"),
        ({"alone": {"prefill": True, "logits": True}}, "sam ✗ 7.1e-1 clip ↳ fus ↳ pref ↳ dec ↳"),
        ({"alone": {"prefill": False, "logits": False}}, "sam ✗ 7.1e-1 clip ↳ fus ↳ pref ✗ dec ↳"),
        ({"alone": {"sam": True, "logits": False}}, "sam ✗ 7.1e-1 clip ↳ fus ↳ pref ↳ dec ✗"),
        ({"first_wrong": "clip.page"}, "sam ✗ 7.1e-1 clip ✗ fus ↳ pref ↳ dec ↳"),
        ({"further": [FurtherResult("vision_fusion", "with no newline", True, ["a"])]}, "sam ✗ 7.1e-1 clip ↳ fus ✗"),
        ({"passes": True}, "sam ! 7.1e-1 clip ! fus ! pref ! dec !"),
    ],
)
def test_a_stage_that_may_only_carry_an_earlier_error_has_a_mark_of_its_own(known: dict[str, Any], line: str) -> None:
    case = case_payload("a", *ALL, **{"passes": False, **known})
    assert line_of(case).replace("tok ✓ ", "").startswith(line)
    for box in boxes_of(case):
        assert (box.style == "carried") is (box.mark == CARRIED)


def test_every_view_explains_the_mark_of_a_carried_error() -> None:
    case = case_payload("a", *ALL, passes=False, first_wrong="sam.page")
    made = result(("failed", payload(ALL[1], case=case)))
    lines = [line.text for line in Summary(made).lines]
    assert sum(line.startswith("page ") and "clip ↳" in line for line in lines) == 1
    assert [line for line in lines if line.startswith(CARRIED[0]) and CARRIED[1] in line]
    whole = markdown(made.document)
    assert "clip ↳" in whole
    assert f"| {CARRIED[0]} | {CARRIED[1]} |" in whole
    page = html(made.document)
    assert 'class="carried"><summary><span aria-hidden="true">↳</span> clip' in page
    assert page.count(CARRIED[1]) > 1


def test_the_scoreboard_marks_the_first_wrong_stage_and_what_a_release_changed() -> None:
    page = PAGES["scoreboard"]()
    assert page.count(' first"') == 1
    assert re.search(r'WRONG first">✗ <small>1 of 1</small> <small>7e-01', page)
    assert re.search(r'MATCH">✓<span title="differs', page)
