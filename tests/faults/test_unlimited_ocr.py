"""Mistakes of Unlimited-OCR alone, planted in an engine: each is found in its stage and named.

The engine has the embedded checkpoint's weights and a ring of 8, which a few steps fill.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.markup import to_mmd
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.explain import explain
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import PageRead, Question, question_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import SearchResult
from pytest_dsocr.models import MODELS
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.run.sides import ask
from tests.faults.outcome import stage_of, stage_of_group

RING = 8
OWN = MODELS["unlimited_ocr"].with_ring(RING)
PAGES = {page.stem: page for page in shipped("dev-20")}
FIRST, PAST_NINE, OTHER, SEVERAL = "invoice_000", "article_030", "figures_009", ""
"""Names of pages. ``PAST_NINE`` has more than nine crops; ``SEVERAL`` is two pages in one prompt."""
ENOUGH_S = 600
OF_CASES = {
    **{
        f"steps.{name}": (FIRST, "base", 2 * RING)
        for name in (
            *("cache-all", "cache-ring-7", "cache-ring-9", "cache-own-late", "cache-end-of-prompt", "cache-window-8"),
            *("cache-chunk-256", "cache-rebased", "positions-slot", "positions-full", "positions-next"),
        )
    },
    "pixels.grid-most-9": (PAST_NINE, "gundam", 1),
    "prompt.newline": (OTHER, "base", 1),
    "prompt.prompt-free": (OTHER, "base", 1),
    "pixels.pages-cut": (SEVERAL, "base", 1),
    "pixels.pages-640": (SEVERAL, "base", 1),
}
ALIKE = {
    "steps.cache-all": {"steps.cache-window-512", "steps.cache-window-1024"},
    "pixels.grid-most-9": {
        *("pixels.grid-six", "pixels.grid-twelve", "pixels.grid-ceil"),
        *(f"pixels.grid-most-{most}" for most in (7, 8, 10, 11)),
    },
}
"""Other mistakes that have the same effect: the page's 306 tokens fit into these windows, and all of these limits cut
the page into 2 x 3 crops."""


class Reference:
    """Reference with the engine that is also the subject, without the mistake."""

    def __init__(self, folder: Path) -> None:
        for file in MINI_FOLDER.iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "config.json").unlink()
        named = {"architectures": [OWN.vendor.architecture], "sliding_window_size": RING}
        config = json.loads((MINI_FOLDER / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | named), encoding="utf-8")
        self.runtime = EngineRuntime.load(str(folder))
        self.provenance, self.observe = self.runtime.provenance, cache(self._observe)

    def _observe(self, case: Case) -> ReferenceResult:
        return self.runtime.observe(case)

    def close(self) -> None:
        """Do nothing: no process is open."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("ring"))


@pytest.fixture
def engine(reference: Reference) -> Engine[Any]:
    return reference.runtime.subject.engine


@contextmanager
def planted(name: str, engine: Engine[Any]) -> Iterator[None]:
    with Changes() as changes:
        plant(mistakes(OWN)[name], engine, changes)
        yield


def judged(reference: Reference, case: Case) -> CaseReport:
    return judge(ask(reference.runtime.subject, reference, case), tolerances("float32"))


def case_of(page: str, preset: str, tokens: int, folder: Path | None = None) -> Case:
    if folder and page == SEVERAL:
        for name in (FIRST, OTHER):
            (folder / PAGES[name].name).symlink_to(PAGES[name])
        return make_case(folder, OWN.pages_prompt, preset, tokens, family=OWN)
    return make_case(PAGES[page], "markdown", preset, tokens, family=OWN)


def explained(engine: Engine[Any], case: Any, question: Question | None) -> SearchResult:
    assert question is not None

    def clean_of(one: Case) -> Clean:
        return Clean(engine, engine.prepare(one.page, prompt=one.prompt, preset=one.preset))

    with torch.no_grad():
        return explain(engine, case, question, clean_of)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("name", "page"), OF_CASES.items(), ids=OF_CASES)
def test_a_mistake_is_found_in_its_stage_and_named(
    name: str, page: tuple[str, str, int], reference: Reference, engine: Engine[Any], tmp_path: Path
) -> None:
    reference.observe(case := case_of(*page, folder=tmp_path))
    with planted(name, engine):
        report = judged(reference, case)
    assert report.divergence is not None
    assert stage_of(report.divergence.first.stage) == stage_of_group(mistakes(OWN)[name].group)
    found = explained(engine, case, question_of(report, ENOUGH_S))
    assert (found.explained, found.error) == (True, 0.0)
    assert sorted(found.found) == sorted((name, *ALIKE.get(name, ())))


def test_the_end_of_a_prompt_before_is_found_in_decode(reference: Reference, engine: Engine[Any]) -> None:
    first, second = case_of(OTHER, "base", 1), case_of(FIRST, "gundam", 2 * RING)
    assert [reference.observe(case) for case in (first, second)]
    with planted("files.ring-kept", engine):
        assert judged(reference, first).divergence is None
        divergence = judged(reference, second).divergence
    assert divergence is not None
    assert stage_of(divergence.first.stage) == "decode"


OUTPUTS = {
    "text-order": "<|det|>image [1, 2, 300, 400]<|/det|>a <|ref|>image<|/ref|><|det|>[[5, 6, 700, 800]]<|/det|>",
    "any-label": "<|det|>\u56fe [1, 2, 3, 4]<|/det|>a",
    "nested": "<|det|>table [[1, 2, 3, 4]]<|/det|>a",
}


@pytest.mark.parametrize(("name", "text"), OUTPUTS.items(), ids=OUTPUTS)
def test_what_is_written_is_laid_to_how_spans_are_found(
    name: str, text: str, engine: Engine[Any], tmp_path: Path
) -> None:
    with planted(f"written.{name}", engine):
        write_artifacts(text, PAGES[OTHER], tmp_path, OWN.form)
    written = (tmp_path / OWN.form.result_file).read_text(encoding="utf-8")
    assert written != to_mmd(text, OWN.form)
    question = Question(PageRead({}, text, ()), "result.mmd", 0, ENOUGH_S, 1e-4, mmd=written)
    assert explained(engine, None, question).found == (f"written.{name}",)


def test_what_stands_in_front_of_the_first_page_is_kept(engine: Engine[Any], tmp_path: Path) -> None:
    with planted("files.preamble-kept", engine):
        write_artifacts("a<PAGE>b", [PAGES[OTHER]], tmp_path, OWN.form)
    assert (tmp_path / OWN.form.result_file).read_text(encoding="utf-8") == "<PAGE>\na\n<PAGE>\nb"
