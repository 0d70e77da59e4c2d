"""The sentence of a cause, which follows "explained" in a report, and whether the cause is proven."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.readings import REPEATED, STATE
from pytest_dsocr.compare.seams import known_effects
from pytest_dsocr.contract import GRID, ROWS
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.hints import FLAG
from pytest_dsocr.explain.mistake import ALL
from pytest_dsocr.explain.proof import AGREEING, MOST_ODDS, UNTOLD, Evidence, odds_of_places, odds_of_tensor
from pytest_dsocr.explain.question import BY_TEXT, Question
from pytest_dsocr.explain.search import NOT, NextWrong, SearchResult
from pytest_dsocr.models import VISION
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import ComparisonKind

PARTS = {
    ALL: "vision and the decoder",
    **dict.fromkeys(VISION, "vision"),
    **dict.fromkeys(("prefill", "steps"), "the decoder"),
    **{"pixels": "pixels", "prompt": "the prompt", "read": "the choice of tokens", "text": "what is made of tokens"},
}
"""Part of the model that a group of mistakes belongs to."""
REFUTED = "not by"
"""Start of an explanation that says: the mistakes that explain the earlier pages do not explain this one."""
NOT_SEARCHED = "not searched"
OF_GRID = ".grid-"
"""Part of the ids of rules for grids; one page shows a single grid, which other rules give as well."""
IN_PART, BUT_NOT = "in part: ", ", but not "
MOST_WORDS = 3
"""Largest number of equally good mistakes that are named."""


def of_search(question: Question, answer: SearchResult) -> Explanation | None:
    """Return the explanation of a search's result; None if nothing was tried."""
    if not answer.tried and not answer.raised:
        return None
    what, is_text, untried = question.what, question.what in BY_TEXT, _untried(question, answer)
    answer = _simplest_first(answer) if is_text else answer
    if not answer.found:
        failed = () if question.others else answer.raised
        raised = f"; {len(failed)} could not be computed: {_listed(failed, ', ')}" if failed else ""
        pages = len(question.others) + 1 if is_text and not untried else 0
        text = f"{_by_none(answer.tried, what)}{raised}{untried}"
        return _of_search(answer, text, what, pages=pages)
    evidence, named = evidence_of(question, answer), f"with {_listed(answer.words, ', or ')}"
    if is_text:
        where = "the subject's text of every page so far" if question.others else "the subject's text"
        places, pages = count(answer.places or 0, "independent difference"), len(question.others) + 1
        if evidence.is_chance:
            text = f"{UNTOLD}: {_several(question, answer)} gave {where}, with {places}{untried}"
            return replace(_of_search(answer, text, what, evidence, pages=pages), words=())
        apart = _not_apart(pages) if len(answer.found) > 1 else ""
        text = f"{_of_parts(answer)}{named}, the engine reproduces {where} (equal, with {places}{apart}){untried}"
        return _of_search(answer, text, what, evidence, pages=pages)
    apart = "equal" if answer.error == 0 else f"{answer.error:.0e} apart"
    without = "" if answer.without in (1.0, math.inf) else f", {answer.without:.0e} without"
    reached = f"the subject's {what} ({apart}{without})"
    if not answer.explained:
        return _of_search(answer, f"{IN_PART}{named}, the engine comes nearer to {reached}", what)
    if what in (*ROWS, GRID) and len(answer.found) > MOST_WORDS:
        text = f"{UNTOLD}: {_several(question, answer)} gave {reached}{_behind(answer)}{untried}"
        return replace(_of_search(answer, text, what, evidence), words=())
    text = f"{named}, the engine reproduces {reached}{_behind(answer)}{untried}"
    found = _of_search(answer, text, what, evidence)
    return replace(found, words=()) if answer.beyond.startswith(NOT) else found


def _simplest_first(answer: SearchResult) -> SearchResult:
    """Return the result with the mistakes in fewest words first: all of them give the same texts."""
    rows = sorted(zip(answer.found, answer.words, answer.groups, strict=True), key=lambda row: len(row[1].split()))
    found, words, groups = zip(*rows, strict=True) if rows else ((), (), ())
    return replace(answer, found=found, words=words, groups=groups)


def _not_apart(pages: int) -> str:
    return f"; {'this page does' if pages == 1 else f'these {pages} pages do'} not tell them apart"


def _of_search(
    answer: SearchResult, text: str, what: str, evidence: Evidence | None = None, *, pages: int = 0
) -> Explanation:
    refuted = frozenset(answer.refuted)
    is_whole, is_proven = evidence is not None, evidence is not None and evidence.is_proof
    return Explanation(text, what, answer.found, answer.words, refuted, answer.untried, is_whole, is_proven, pages)


def beside(
    explanation: Explanation | None, relations: Iterable[Description], *, is_only: bool = True
) -> Explanation | None:
    """Return the explanation without mistakes that leave a difference, if a relation says how the values differ.

    Mistakes that only come nearer are left out. Mistakes that contradict the next tensors need another cause to stay.
    """
    if explanation is None or not any(one.says_how for one in relations):
        return explanation
    if not explanation.text.startswith(IN_PART) and not (is_only and BUT_NOT in explanation.text):
        return explanation
    refuted = explanation.refuted.union(explanation.mistakes)
    text = _by_none(len(refuted), explanation.what)
    return replace(explanation, text=text, mistakes=(), words=(), refuted=refuted, is_whole=False)


def of_further(question: Question, found: Iterable[NextWrong], first: Explanation | None) -> Iterator[Explanation]:
    """Yield the explanations of further causes. None is proven that needs an earlier cause without a proof.

    Args:
        question: the question about the first divergence.
        found: searches for the further causes.
        first: explanation of the first divergence.
    """
    proven = {*first.mistakes} if first and first.is_proven else set()
    for what, answer, needs, left in found:
        explanation = of_search(replace(question, what=what), answer)
        explanation = explanation or Explanation(f"{NOT_SEARCHED}{_untried(question, answer)}", what)
        if left:
            mistakes = explanation.mistakes if explanation.words else ()  # too many to name one
            told = (explanation.text, left) if mistakes else (left, explanation.text)
            explanation = replace(explanation, text="; ".join(told), mistakes=mistakes)
        explanation = replace(explanation, is_proven=explanation.is_proven and proven.issuperset(needs))
        proven |= {*explanation.mistakes} if explanation.is_proven else set()
        yield explanation


def of_rounding(report: CaseReport) -> Explanation | None:
    """Return the explanation of a case that first breaks at a stage's rounding; None for any other case."""
    first = report.divergence.first if report.divergence else None
    if first is None or first.name.kind is not ComparisonKind.ROUNDING:
        return None
    found = report.exchange.answer.rounding[first.stage]
    effects, tried = known_effects(found), len(found.tried)
    ids, named = tuple(one.id for one in effects), tuple(one.words for one in effects)
    refuted = frozenset(found.tried).difference(ids)
    if not effects:
        none = _by_none(tried, first.what)
        return Explanation(none, first.what, refuted=refuted, untried=found.untried) if tried else None
    likeliest = effects[0]
    evidence = Evidence(found.untried, len(effects), tried * math.erfc(likeliest.z / math.sqrt(2)))
    text = f"with {', or '.join(named)}, the engine differs from the vendor's kernels as the subject does "
    text += f"({likeliest.share:.3f} of the effect, z = {likeliest.z:.0f})"
    return Explanation(text, first.what, ids, named, refuted, found.untried, is_proven=evidence.is_proof)


def of_readings(report: CaseReport) -> Explanation | None:
    """Return the explanation of a case that breaks in its text because its readings differ; otherwise None."""
    divergence, why = report.divergence, report.readings.why if report.readings else ""
    if divergence is None or not why or divergence.first.what not in REPEATED:
        return None
    evidence = Evidence(0, 1, MOST_ODDS if why == STATE else 1.0)
    return Explanation(why, divergence.first.what, is_proven=evidence.is_proof)


def of_refuted(what: str, pages: int) -> Explanation:
    """Return the explanation of a text that refutes all mistakes that explain the pages before."""
    return Explanation(f"{REFUTED} any known mistake that gives the texts of the pages before", what, pages=pages)


def of_earlier(found: Explanation, case_id: str, what: str) -> Explanation:
    """Return the explanation of a case that breaks in the same stage as an earlier one: no second search is made."""
    text = f"not searched again, see {case_id}"
    return replace(found, text=text, what=what, mistakes=(), is_whole=False, is_proven=False, pages=0)


def evidence_of(question: Question, answer: SearchResult) -> Evidence:
    """Return the evidence for the mistakes that give the subject's values.

    It is void if the next tensors contradict the mistake. A mistake that is known to coincide with another on some page
    is proven only if the other one was tried.
    """
    from pytest_dsocr.explain.catalogue import twins

    by_text, before = question.what in BY_TEXT, question.done or ()
    odds, is_chance = odds_of_tensor(answer.error, question.ordinary), False
    if answer.places is not None:
        odds = odds_of_places(answer.places, number := _tried(question, answer))
        is_open = question.level < Level.STAGES  # with right stages, only rules of the text itself are left
        is_chance = is_open and odds_of_places(answer.places, number, AGREEING) > MOST_ODDS
    tried = {*answer.done, *before}
    unseen = len({other for one in answer.found for other in twins(one, by_text=by_text)} - tried)
    is_of_grid = any(OF_GRID in one for one in answer.found)
    odds = 1.0 if is_of_grid or answer.beyond.startswith(NOT) else odds
    return Evidence(answer.untried + answer.unpaired + unseen, len(answer.found), odds, is_chance)


def _tried(question: Question, answer: SearchResult) -> int:
    """Return the number of mistakes that were tried on the pages so far."""
    return len({*(question.done or ()), *answer.done})


def _several(question: Question, answer: SearchResult) -> str:
    return f"{len(answer.found)} of {count(_tried(question, answer), 'known mistake')} tried"


def _by_none(tried: int, what: str) -> str:
    return f"by none of {count(tried, 'known mistake')} tried at {what}"


def _of_parts(answer: SearchResult) -> str:
    """Return the part of the model that the mistakes are in, if these are many."""
    if len(answer.found) <= MOST_WORDS:
        return ""
    parts = Counter(PARTS[group] for group in answer.groups).most_common()
    one_part = f"all of them of {parts[0][0]}"
    of_parts = one_part if len(parts) == 1 else ", ".join(f"{number} of {part}" for part, number in parts)
    return f"by one of {len(answer.found)} mistakes, {of_parts}: "


def _behind(answer: SearchResult) -> str:
    if answer.beyond.startswith(NOT):
        return f"{BUT_NOT}{answer.beyond.removeprefix(NOT)}"
    return f", and also {answer.beyond}" if answer.beyond else ""


def _listed(words: Sequence[str], between: str) -> str:
    more = [f"{len(words) - MOST_WORDS} more"] if len(words) > MOST_WORDS else []
    return between.join([*words[:MOST_WORDS], *more])


def _untried(question: Question, answer: SearchResult) -> str:
    if not answer.untried:
        return ""
    left = count(answer.untried, "other")
    return f"; the {question.budget_s:g} s ended before {left}, {FLAG}=SECONDS allows more"
