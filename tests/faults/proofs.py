"""Search for false proofs and hints: a mistake is planted, and its own row of the catalogue is not searched for.

Any proof is then false, except that of a mistake with the same tensors as the planted one on every page. A hint is
false if it names a mistake that the search has refuted.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from pytest_dsocr.base.files import write_whole
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.catalogue import mistakes, twins
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes, Mistake, in_one_block
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import PageRead, question_of
from pytest_dsocr.explain.runtime import ExplainingRuntime
from pytest_dsocr.explain.search import EXACT, SearchResult, distance
from pytest_dsocr.explain.sentence import beside, evidence_of, of_search
from pytest_dsocr.explain.texts import everywhere, of_one_block, of_text
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level
from pytest_dsocr.report.case_result import advice
from pytest_dsocr.run.described_tensors import descriptions
from pytest_dsocr.run.resources import RunResources
from tests.faults.outcome import is_named
from tests.faults.trial import READ_TOKENS, SETUP, judged, loaded, reference

ASKED = os.environ.get("DSOCR_PROOFS", "")
"""Folder of results, if the whole matrix is wanted."""
EVERY = int(os.environ.get("DSOCR_PROOFS_EVERY", "1"))
"""Step between the rows that are planted."""
BUDGET_S = 100_000.0
"""CPU seconds that let a search finish."""


@dataclass(frozen=True)
class Said:
    """Explanation of a planted mistake without its own row."""

    first: str = ""
    """Comparison that breaks first; empty if no page shows the mistake."""
    text: str = ""
    named: tuple[str, ...] = ()
    proven: bool = False
    odds: float = 1.0
    places: int | None = None
    tried: int = 0
    untried: int = 0
    alike: bool = False
    """Whether the named and the planted mistake give the same tensors on every page."""
    hint: str = ""
    """Hint of the report."""
    described: str = ""
    """Description of the first divergence, with the share of the difference that it explains."""
    refuted: tuple[str, ...] = ()
    """Refuted mistakes that the hint names."""

    @property
    def is_false(self) -> bool:
        """Whether the explanation is a false proof."""
        return self.proven and not self.alike


@dataclass(frozen=True)
class OfTexts:
    """Texts of a subject with a mistake by page, and explanations by the pages of a run."""

    texts: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, Said] = field(default_factory=dict)


@cache
def pages() -> tuple[Case, ...]:
    """Return the pages of a default run, the quickest first."""
    of = {page.stem: page for page in shipped("dev-3")}
    names = dict.fromkeys(("figures_201", "invoice_016", *of))
    return tuple(make_case(of[name], "markdown", "gundam", READ_TOKENS, family=DEEPSEEK_OCR) for name in names)


@cache
def rows() -> Mapping[str, Mistake]:
    """Return every mistake, also those in one block alone and those in all weights."""
    every = (*mistakes(DEEPSEEK_OCR).values(), *everywhere(DEEPSEEK_OCR), *of_one_block(loaded().engine))
    return {one.id: one for one in every}


@cache
def runtime() -> ExplainingRuntime:
    """Return the engine without a mistake that explains."""
    return ExplainingRuntime.load(MINI)


def kept(name: str, make: Callable[[], Any], kind: Any) -> Any:
    """Return the kept result of a row, or make and keep it."""
    if not ASKED:
        return make()
    path = Path(ASKED) / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(make())))
    return _read(path, kind)


def answered(report: CaseReport, asked: Sequence[str], others: Sequence[CaseReport] = ()) -> Said:
    """Return the explanation of a report, and of ``others`` for texts; the search leaves out the ids in ``asked``."""
    question = question_of(report, BUDGET_S)
    if question is None:
        return Said(report.divergence.first.what if report.divergence else "")
    question = replace(question, done=tuple(asked), others=tuple(PageRead.of(one) for one in others))
    answer = msgspec.convert(runtime().explain(question.pack()), SearchResult)
    evidence, said = evidence_of(question, answer), of_search(question, answer)
    if said is None:
        return Said(question.what)
    tried = {*(question.done or ()), *answer.done}
    found = Said(
        question.what, said.text, answer.found, said.is_proven, evidence.odds, answer.places, len(tried), answer.untried
    )
    if report.divergence is None:
        return found
    said = beside(said, report.exchange.described.values()) or said
    checked = advice(replace(report, exchange=replace(report.exchange, explanation=said)))
    words = f"{known.text} ({known.share:.2f})" if (known := report.described) else ""
    return replace(found, hint=checked, refuted=refuted_in(checked, said.refuted), described=words)


def refuted_in(checked: str, refuted: Collection[str]) -> tuple[str, ...]:
    """Return the refuted mistakes that a hint names."""
    left = {one.words for one in rows().values() if one.id not in refuted}
    words = {one: rows()[one].words for one in refuted if one in rows()}
    return tuple(one for one, said in words.items() if said not in left and is_named(said, checked))


@cache
def own_rows(name: str) -> Mapping[str, Mistake]:
    """Return the row of a mistake, and its copies for one block alone."""
    whole = replace(rows()[name], block=None).id
    alone = in_one_block([mistakes(DEEPSEEK_OCR)[whole]], loaded().engine) if whole in mistakes(DEEPSEEK_OCR) else ()
    return {whole: rows()[whole], **{one.id: one for one in alone}}


@cache
def every_id() -> frozenset[str]:
    """Return the ids of all mistakes that a search may try."""
    return frozenset(rows()) | {one.id for one in in_one_block(mistakes(DEEPSEEK_OCR).values(), loaded().engine)}


@cache
def explainer() -> Explainer:
    """Return the process that describes."""
    return Explainer(SETUP, BUDGET_S)


def reports(name: str, level: Level, *, up_to_first: bool = False) -> list[CaseReport]:
    """Return the reports of a subject with a mistake on all pages, or up to the first that breaks, described."""
    found = list[CaseReport]()
    reference(), pages()  # made before the mistake, which may change resizing and presets
    with Changes() as changes:
        plant(own_rows(name)[name], loaded().engine, changes)
        for case in pages():
            found.append(judged(case, level))
            if up_to_first and found[-1].divergence:
                found[-1] = _described(found[-1]) if ASKED else found[-1]
                break
    return found


def _described(report: CaseReport) -> CaseReport:
    """Describe the first divergence as a run does, while the mistake is planted."""
    known = descriptions(report, loaded(), RunResources(SETUP, explainer()))
    return replace(report, exchange=replace(report.exchange, described=known))


def with_stages(name: str) -> Said:
    """Return the explanation of the first page that breaks, for a subject that shows everything."""
    last = reports(name, Level.MODULES, up_to_first=True)[-1]
    if not last.divergence:
        return Said()
    said = answered(last, [*own_rows(name)])
    return replace(said, alike=said.proven and _alike(name, said.named[0]))


def of_text_alone(name: str) -> OfTexts:
    """Return the texts of a subject with a mistake."""
    return OfTexts({one.case.page.stem: one.exchange.answer.text for one in reports(name, Level.TEXT)})


def runs() -> Mapping[str, Sequence[int]]:
    """Return the pages of each run: all of them, and each alone."""
    return {"all": range(len(pages())), **{case.page.stem: (k,) for k, case in enumerate(pages())}}


def proven_by_texts(name: str, texts: Mapping[str, Mapping[str, str]]) -> OfTexts:
    """Return the explanations by texts, for the runs in which exactly one other mistake gives the same texts.

    Only that one is searched for, since the kept texts already refute the others.
    """
    own, found = {*own_rows(name)}, dict[str, Said]()
    searched = {one.id for one in of_text(0, DEEPSEEK_OCR, of_one_block(loaded().engine))}
    right = {case.page.stem: reference_text(case) for case in pages()}
    every: list[CaseReport] = []
    for run, places in runs().items():
        stems = [pages()[k].page.stem for k in places]
        if all(texts[name][stem] == right[stem] for stem in stems):
            continue
        same = [
            one
            for one in searched - own
            if one in texts and all(texts[one][stem] == texts[name][stem] for stem in stems)
        ]
        if len(same) != 1:
            found[run] = Said("text", named=tuple(sorted(same)))
            continue
        every = every or reports(name, Level.TEXT)
        asked = sorted((every[k] for k in places), key=lambda one: one.passes)
        said = answered(asked[0], [one for one in searched if one != same[0]], asked[1:])
        is_proven = said.proven and not own & twins(same[0], by_text=True)  # the search believes that its own was tried
        found[run] = replace(said, proven=is_proven, alike=is_proven and _alike(name, same[0]))
    return OfTexts(texts[name], found)


def reference_text(case: Case) -> str:
    """Return the reference's text of a page."""
    return reference().observe(case).output.text


def _alike(one: str, other: str) -> bool:
    """Return whether subjects with two mistakes differ by less than float32 can tell."""
    both = zip(reports(one, Level.MODULES), reports(other, Level.MODULES), strict=True)
    return all(_same(a.exchange.answer, b.exchange.answer) for a, b in both)


def _same(one: Any, other: Any) -> bool:
    shared = one.seams.keys() & other.seams.keys()
    seams = all(distance(one.seams[name], other.seams[name]) <= EXACT for name in shared)
    whole = one.seams.keys() == other.seams.keys() and one.inputs == other.inputs
    tokens = [None if side.forced is None else [step.token for step in side.forced] for side in (one, other)]
    return seams and whole and one.text == other.text and tokens[0] == tokens[1]


def table(folder: Path) -> dict[str, Any]:
    """Return the summary of a folder of results: numbers of planted rows, and all proofs."""
    stages = {path.stem: _read(path, Said) for path in sorted((folder / "stages").glob("*.json"))}
    texts = {path.stem: _read(path, OfTexts).runs for path in sorted((folder / "texts").glob("*.json"))}
    of_texts = {f"{name} on {run}": said for name, of_row in texts.items() for run, said in of_row.items()}
    rows_of = {"stages": len(stages), "reads": len([*(folder / "reads").glob("*.json")]), "texts": len(texts)}
    return {"rows": rows_of, "stages": _count(stages), "texts": _count(of_texts)}


def _count(said: Mapping[str, Said]) -> dict[str, Any]:
    alone = [one for one in said.values() if len(one.named) == 1]
    return {
        "shown": sum(bool(one.first) for one in said.values()),
        "one other is named": len(alone),
        "its odds": {name: [one.places, one.odds] for name, one in said.items() if len(one.named) == 1 and one.text},
        "not all tried": sum(bool(one.untried) for one in alone),
        "proven, alike": {name: one.named[0] for name, one in said.items() if one.proven and one.alike},
        "proven, false": {name: asdict(one) for name, one in said.items() if one.is_false},
    }


def _read(path: Path, kind: Any) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=kind)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(table(Path(ASKED)), separators=(",", ":")) + "\n")
