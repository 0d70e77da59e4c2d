"""Ports with a mistake that no catalogue has: the report describes what differs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract import artifacts
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.ids import Vocabulary
from pytest_dsocr.describe.state import PageSeen
from pytest_dsocr.describe.texts import is_partial
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.hints import names_cause
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import Artefact, ReferenceResult
from pytest_dsocr.report.case_result import CaseResult, advice
from pytest_dsocr.run.described import described
from pytest_dsocr.run.sides import ask
from pytest_dsocr.subjects.engine import EngineSubject
from suites.contract.pages import write_page
from tests.faults.trial import cases, loaded, reference
from tests.subjects.seen import judged, seen
from tests.subjects.spoilt import only

LONG = "<image>\n" + "Convert this page to text, and leave out what is struck through. " * 16
VOCABULARY = 512
"""Ids of the smallest synthetic checkpoint, as far as these tests are concerned."""


class IdsChanged(EngineSubject):
    """An engine that makes other ids of a prompt."""

    def __init__(self, engine: Engine[Any], change: Callable[[list[int]], Sequence[int]]) -> None:
        super().__init__(engine)
        self.change = change

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        tensors = super().inputs(page, prompt=prompt, preset=preset)
        ids = torch.tensor([self.change(tensors["input_ids"][0].tolist())])
        mask = ids == self.engine.tokenizer.special.image
        return {**tensors, "input_ids": ids, "images_seq_mask": mask}


@pytest.fixture(scope="module")
def long_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a page with a prompt of more than 1,024 tokens."""
    page = write_page("square", tmp_path_factory.mktemp("pages"))
    return make_case(page, LONG, "tiny", 1, family=DEEPSEEK_OCR)


@pytest.fixture(scope="module")
def expected(long_case: Case, tiny: Engine[Any]) -> ReferenceResult:
    """Return what an engine without a mistake reads."""
    return seen(tiny, long_case)


def _second_bos(ids: list[int]) -> list[int]:
    return [*ids[:1_024], ids[0], *ids[1_024:]]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (_second_bos, "inserted", "one token 0 (BOS) inserted at 1,024"),
        (lambda ids: [34_030 if one == ids[-1] else one for one in ids], "replaced", "token 34030 in place of "),
        (lambda ids: [ids[0], *ids[2:]], "count", "72 image tokens in place of 73: without the separator"),
        (lambda ids: [one + 90_000 for one in ids], "offset", "ids are +90,000"),
    ],
    ids=["second BOS", "another vocabulary", "no separator", "offset"],
)
def test_wrong_ids_are_described(
    change: Callable[[list[int]], Sequence[int]],
    kind: str,
    words: str,
    long_case: Case,
    tiny: Engine[Any],
    expected: ReferenceResult,
) -> None:
    subject = only(IdsChanged(tiny, change), Level.INPUTS)
    report = judged(subject, long_case, expected, always_read=True)
    found = _described(report, Vocabulary(tiny.tokenizer, VOCABULARY))
    assert (found.kind, found.explains) == (kind, True)
    assert words in found.text


def _described(report: CaseReport, vocabulary: Vocabulary | None = None, **pages: PageSeen) -> Description:
    """Return the description of a case; check that the result has it in the place of a guess."""
    known = vocabulary or Vocabulary(resolve(MINI).tokenizer, 2017)
    relations = described(report, known, pages)
    assert report.divergence is not None
    found = relations[report.divergence.first.what]
    whole = replace(report, exchange=replace(report.exchange, described=relations))
    result = CaseResult.of(whole)
    assert result.described == found
    assert (
        not found.explains
        or not advice(whole)
        or names_cause(advice(whole))
        or found.kind == "edited"
        or is_partial(found)
    )
    return found


@cache
def read(page: Path) -> str:
    """Return what the engine reads of a page."""
    case = cases()[0]
    return loaded().read(page, prompt=case.prompt, preset=case.preset, max_new_tokens=case.max_new_tokens)


class Port(EngineSubject):
    """An engine that reads a page once, and changes its text or the figures that are cut out."""

    def __init__(self, text: Callable[[str], str] = str, figure: Callable[..., Image.Image] | None = None) -> None:
        super().__init__(loaded().engine)
        self.change, self.figure = text, figure

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return self.change(read(page))

    def write(self, text: str, page: Path, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if self.figure:
                patch.setattr(artifacts, "crop_figure", self.figure)
            super().write(text, page, folder)


def held(port: Port) -> CaseReport:
    """Return the report of the quickest page, which has figures."""
    asked = ask(only(port, Level.TEXT, "write"), reference(), cases()[0], tokenizer=resolve(MINI).tokenizer)
    return judge(asked, tolerances("float32"))


def _wider(page: Image.Image, pixels: Sequence[int]) -> Image.Image:
    x1, y1, x2, y2 = pixels
    return page.crop((x1, y1, x2 + 1, y2 + 1))


def _around(page: Image.Image, pixels: Sequence[int]) -> Image.Image:
    x1, y1, x2, y2 = pixels
    return page.crop((x1 - 1, y1 - 1, x2 + 1, y2 + 1))


@pytest.mark.parametrize(
    ("figure", "kind", "words"),
    [
        (
            _wider,
            "longer",
            "the only figure is 1 pixel wider and higher: its right and lower edges are one pixel further; "
            "2 of 4 edges differ by it, and all fit as well if the right and lower edges are rounded up to pixels",
        ),
        (_around, "grown", "the only figure is 2 pixels wider and higher; the origin is moved by (-1, -1) px"),
    ],
)
def test_figures_of_another_size_are_described(figure: Callable[..., Image.Image], kind: str, words: str) -> None:
    report = held(Port(figure=figure))
    assert report.divergence is not None
    assert report.divergence.first.what == "artefacts"
    found = _described(report)
    assert (found.kind, found.share, found.text) == (kind, 1.0, words)


def test_figures_of_another_quality_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    save = Image.Image.save

    def in_quality(self: Image.Image, file: Any, kind: str | None = None, **how: Any) -> None:
        save(self, file, kind, **({"quality": 95} | how if kind == "JPEG" else how))

    port = Port()
    report = held(port)
    assert report.divergence is None
    write = port.write

    def of_quality(text: str, page: Path, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Image.Image, "save", in_quality)
            write(text, page, folder)

    monkeypatch.setattr(port, "write", of_quality)
    assert _described(held(port)).text == "each figure is a JPEG of quality 95, the vendor's is 75"


def _with_boxes(change: Callable[[int, int], float], text: str) -> str:
    """Change each coordinate of a text, given its place."""
    places = count()
    return re.sub(r"(?<=[\[ ])\d+(?=[,\]])", lambda found: str(int(change(next(places), int(found[0])))), text)


TEXTS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "line breaks": (lambda text: text.replace("\n", ""), "every line break is missing, at "),
    "escaped": (lambda text: text.replace("<", "&lt;"), "'&lt;' in place of '<' at "),
    "cut": (lambda text: text[:99], "it ends after 99 of "),
}


EFFECTS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "in pixels": (partial(_with_boxes, lambda k, one: one * (1.14 if k % 2 else 1.1)), "how the page is laid into"),
    "moved": (partial(_with_boxes, lambda k, one: one + 3), "how the page is laid into its view, or how boxes are"),
    "cut": (lambda text: text[:99], "what ends an output, or the steps before it"),
    "in front": (lambda text: f"Text: {text}", "what is cut off a text, or put in front of it"),
}


@pytest.mark.parametrize(("change", "words"), EFFECTS.values(), ids=EFFECTS)
def test_beside_a_described_effect_only_the_stages_that_can_cause_it_are_named(
    change: Callable[[str], str], words: str
) -> None:
    report = held(Port(change))
    described_by = {"text": _described(report)}
    alone = replace(report, exchange=replace(report.exchange, described=described_by))
    assert advice(alone).startswith(words)


@pytest.mark.parametrize(("change", "words"), TEXTS.values(), ids=TEXTS)
def test_a_wrong_text_is_described_next_to_its_hint(change: Callable[[str], str], words: str) -> None:
    assert words in _described(held(Port(change))).text


def test_a_cut_is_said_of_all_pages_only_if_it_holds_for_each() -> None:
    report = held(Port(lambda text: text[:-3]))
    output, answer = report.exchange.expected.output, report.exchange.answer
    pages = {"one": PageSeen("Page 120", 700, "Page "), report.case.id: PageSeen(output.text, 700, answer.text)}
    assert (
        _described(report, None, **pages).text
        == "the last 3 characters are missing, on each of 2 pages that were read so far"
    )
    other = _described(report, None, **pages, two=PageSeen("Page 7", 700, "Page 7"))
    assert other.text.startswith("it ends after ")


def test_a_text_of_another_page_is_recognised() -> None:
    found = _described(held(Port(lambda _: "Another page.")), other=PageSeen("Another page.", 700))
    assert found.text == "the text is that of other"


def test_a_recorded_artefact_equals_the_file_that_it_was_made_of(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    path = tmp_path / "images/0.jpg"
    Image.effect_noise((40, 30), 90).save(path)
    made = Artefact.of(path)
    assert made == Artefact(made.bytes, (40, 30))
    assert (len(made.tables), len(made.corner or ())) == (64, 24)
