"""The search for a mistake: its conditions for an explanation, and its end."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.case import Explanation
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain import runtime, sentence
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.explain.question import PageRead, Question
from pytest_dsocr.explain.runtime import check_memory, free_bytes
from pytest_dsocr.explain.search import NOT, Search, SearchResult

NEAR, WITHOUT = 1e-4, 0.04
FAR = "sam.far"
PAGE = PageRead({}, "", ())


def known(name: str, kind: str = "") -> Mistake:
    """Return a mistake that changes nothing, with this id."""
    group, _, own = name.rpartition(".")
    return Mistake(group, own, f"the mistake {own}", "block", lambda on: None, kind)


def made(distances: dict[str, float], *, budget_s: float = 60, without: float = WITHOUT) -> SearchResult:
    """Return the result of a search among mistakes with these distances."""

    def measure(one: Mistake) -> float:
        if distances[one.id] < 0:
            raise ValueError("it does not fit these sizes")
        return distances[one.id]

    candidates = [known(name) for name in distances]
    return Search(Question(PAGE, "", 3, 20, NEAR), Deadline(budget_s)).among(candidates, measure, without)


def in_words(answer: SearchResult, what: str = "clip.page/0") -> str:
    explanation = sentence.of_search(Question(PAGE, what, 3, 20, NEAR), answer)
    return explanation.text if explanation else ""


B_OR_C = "with the mistake b, or the mistake c, the engine reproduces the subject's"
NEAREST = "with the mistake b, the engine reproduces the subject's clip.page/0 (3e-07 apart, 4e-02 without)"
RAISED = "by none of 1 known mistake tried at clip.page/0; 2 could not be computed: the mistake p, the mistake q"


@pytest.mark.parametrize(
    ("distances", "without", "found", "explained", "words"),
    [
        ({"a": 0.03, "b": 0.0, "c": 0.0}, WITHOUT, "bc", True, B_OR_C),
        ({"a": 0.03, "b": 3e-7, "c": 2e-5, "broken": -1}, WITHOUT, "b", True, NEAREST),
        ({"b": 3e-7, "c": 4e-7, "d": 0.04}, WITHOUT, "bc", True, B_OR_C),
        ({"a": math.inf, "b": 5e-5}, math.inf, "b", True, "with the mistake b, the engine reproduces"),
        ({"a": WITHOUT, "b": 3e-3}, WITHOUT, "b", False, "in part: with the mistake b"),
        ({"a": WITHOUT, "b": 3e-4}, WITHOUT, "b", False, "in part: with the mistake b"),
        ({"a": 1e-4, "b": 3e-6}, 1e-4, "b", False, "in part: with the mistake b"),
        ({"a": 0.01, "b": math.inf, "c": math.nan}, WITHOUT, "", False, "by none of 3 known mistakes tried at clip"),
        ({"a": 0.01, "p": -1, "q": -1}, WITHOUT, "", False, RAISED),
        ({"a": 8.0, "b": 0.5}, 8.0, "", False, "by none of 2 known mistakes"),
        ({"a": 0.0}, 0.0, "", False, ""),
    ],
)
def test_the_nearest_explains_if_only_rounding_is_left(
    distances: dict[str, float], without: float, found: str, explained: bool, words: str
) -> None:
    answer = made({f"sam.{name}": apart for name, apart in distances.items()}, without=without)
    assert ([one[-1] for one in answer.found], answer.explained) == ([*found], explained)
    assert in_words(answer).startswith(words)
    assert bool(in_words(answer)) is bool(words)


def test_where_a_search_goes_on_what_is_like_one_that_explains_is_tried_next() -> None:
    candidates = [known(f"pixels.{name}", name[:4]) for name in ("grid-six", "crops-fit", "grid-four")]
    asked, names = Question(PAGE, "text", 0, 20, NEAR), list[str]()

    def measure(one: Mistake) -> float:
        names.append(one.id)
        return 0.0

    answer = Search(asked, Deadline(60)).among(candidates, measure, 1.0, near=0.0)
    assert names == [*answer.done] == ["pixels.grid-six", "pixels.grid-four", "pixels.crops-fit"]


def test_what_explains_the_pages_before_is_tried_once() -> None:
    every = [known(f"sam.{name}") for name in "abc"]
    asked = Question(PAGE, "text", 0, 20, NEAR, only=("sam.b",), done=("sam.a",))
    assert [*Search(asked, Deadline(60)).among(every, lambda one: 1.0, 1.0).done] == ["sam.b", "sam.c"]


MANY = {
    "sam": "with sam.0, the engine reproduces the subject's text (equal, with 20",
    "sam clip sam sam": "by one of 4 mistakes, all of them of vision: with sam.0, or clip.1, or sam.2, or 1 more,",
    "steps prompt prefill read": "by one of 4 mistakes, 2 of the decoder, 1 of the prompt, 1 of the choice of tokens:",
}


@pytest.mark.parametrize(("found", "words"), MANY.items())
def test_of_texts_the_part_is_named_where_many_mistakes_give_them(found: str, words: str) -> None:
    ids = tuple(f"{group}.{k}" for k, group in enumerate(found.split()))
    answer = SearchResult(len(ids), 0, 1.0, ids, ids, tuple(found.split()), 0.0, True, done=ids, places=20)
    said = sentence.of_search(Question(PAGE, "text", 0, 20, NEAR), answer)
    assert said is not None
    assert said.text.startswith(words)
    assert (said.is_proven, said.mistakes) == (len(ids) == 1, ids)


PENALTIES = ("a penalty of 1.2, the prompt's not counted", "a penalty of 1.1", "a penalty of 1.2")


@pytest.mark.parametrize(("others", "words"), [(0, "; this page does not tell"), (2, "; these 3 pages do not tell")])
def test_of_mistakes_that_give_the_same_texts_the_simplest_comes_first(others: int, words: str) -> None:
    """The order of the catalogue says nothing about a text that all of them give."""
    ids = ("read.said-1.2", "read.1.1", "read.1.2")
    answer = SearchResult(3, 0, 1.0, ids, PENALTIES, ("read",) * 3, 0.0, True, done=ids, places=20)
    asked = Question(PAGE, "text", 3, 20, NEAR, others=(PAGE,) * others)
    said = sentence.of_search(asked, answer)
    assert said is not None
    assert (said.mistakes, said.words) == ((*ids[1:], ids[0]), (*PENALTIES[1:], PENALTIES[0]))
    assert f"{words} them apart" in said.text
    alone = replace(answer, found=ids[:1], words=PENALTIES[:1], groups=("read",))
    known = sentence.of_search(asked, alone)
    assert known is not None
    assert "apart" not in known.text


TENSOR = SearchResult(3, 0, WITHOUT, ("sam.b",), ("the mistake b",), ("sam",), 0.0, True, done=("a", "sam.b", "c"))
TEXT = replace(TENSOR, places=20)


def both(one: Mistake, other: Mistake) -> Mistake | None:
    return (
        None if one is other else replace(one, name=f"{one.name}+{other.name}", words=f"{one.words}, and {other.words}")
    )


@pytest.mark.parametrize(("names", "is_proven"), [("abc", True), ("abcd", False)])
def test_a_pair_is_proven_only_if_every_pair_was_tried(names: str, is_proven: bool) -> None:
    """The two nearest are tried with each other one; with four mistakes the pair of the last two is left."""

    def measure(one: Mistake) -> float:
        return {"a+b": 0.0, "a": 0.01, "b": 0.02}.get(one.name, 0.03)

    question = Question(PAGE, "clip.page/0", 3, 20, NEAR)
    search = Search(question, Deadline(60))
    answer = search.among([known(f"clip.{name}") for name in names], measure, WITHOUT, join=both)
    said = sentence.of_search(question, answer)
    assert said is not None
    assert (said.mistakes, said.is_proven) == (("clip.a+b",), is_proven)


@pytest.mark.parametrize(
    ("answer", "what", "proven"),
    [
        (TENSOR, "clip.page/0", True),
        (replace(TENSOR, error=1e-6), "clip.page/0", True),
        (replace(TENSOR, error=1e-5), "clip.page/0", False),
        (replace(TENSOR, found=("sam.b", "sam.c")), "clip.page/0", False),
        (replace(TENSOR, untried=1), "clip.page/0", False),
        (replace(TENSOR, beyond="not clip.page/1"), "clip.page/0", False),
        (replace(TENSOR, beyond="all of clip after it"), "clip.page/0", True),
        (TEXT, "text", True),
        (replace(TEXT, places=1), "text", False),
        (replace(TEXT, untried=1), "text", False),
        (replace(TEXT, found=("sam.b", "sam.c"), words=("b", "c"), groups=("sam", "sam")), "text", False),
    ],
)
def test_proven_is_what_alone_is_left_when_all_were_tried_and_much_is_equal(
    answer: SearchResult, what: str, proven: bool
) -> None:
    said = sentence.of_search(Question(PAGE, what, 3, 20, NEAR, ordinary=2e-6), answer)
    assert said is not None
    assert said.is_proven is proven


def test_a_search_counts_as_tried_what_was_tried_before_and_nothing_else() -> None:
    candidates = [known(f"sam.{k}") for k in range(3)]
    for done, budget_s, untried in ((("sam.0", "clip.9"), 60, 0), (("sam.0", "clip.9"), -1, 2), (None, 60, 3)):
        asked = Question(PAGE, "text", 0, 20, NEAR, done=done)
        assert Search(asked, Deadline(budget_s)).among(candidates, lambda one: 1.0, 1.0).untried == untried


def test_a_budget_that_ends_is_reported() -> None:
    answer = made({"sam.a": 0.03, "sam.b": 0.0}, budget_s=-1)
    assert (answer.tried, answer.untried, answer.found) == (0, 2, ())
    assert not in_words(answer), "nothing was tried, so there is nothing to report"
    part = SearchResult(1, 1, WITHOUT, done=("a",))
    assert in_words(part).endswith("the 20 s ended before 1 other, --dsocr-explain=SECONDS allows more")


def test_what_does_not_fit_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 33554432 kB\nMemAvailable: 8388608 kB\n", encoding="utf-8")
    monkeypatch.setattr(runtime, "MEMORY", meminfo)
    assert free_bytes(torch.device("cpu")) == 8 * 2**30
    check_memory("mini", "cpu", "float32")
    with pytest.raises(DsocrError, match=r"needs 18\.\d GiB, and 8\.0 are free on cpu.*--dsocr-explain=0"):
        check_memory("synthetic:full", "cpu", "float32")
    meminfo.unlink()
    assert free_bytes(torch.device("cpu")) is None
    check_memory("synthetic:full", "cpu", "float32")  # without a figure there is no limit


@pytest.mark.parametrize(
    ("what", "one", "twin"),
    [
        ("images_ori", "pixels.levels-bgr", "pixels.opened-bgr"),
        ("logits", "steps.prefill.rope-twice", "steps.prefill.positions-doubled"),
    ],
)
def test_what_has_a_twin_is_proven_only_if_that_was_refuted(what: str, one: str, twin: str) -> None:
    """In the matrix of false proofs each gave the same as the other, which was left out of the search."""
    for others, is_proven in (({}, False), ({twin: 0.03}, True)):
        explanation = sentence.of_search(Question(PAGE, what, 3, 20, NEAR), made({one: 0.0, FAR: 0.03, **others}))
        assert explanation is not None
        assert (explanation.mistakes, explanation.is_proven) == ((one,), is_proven)


FOUND = SearchResult(300, 0, 1.0, ("read.a",), ("the mistake a",), ("read",), 0.0, explained=True, done=("read.a",))


@pytest.mark.parametrize(("places", "is_named", "is_proven"), [(1, False, False), (6, False, False), (8, True, False)])
def test_a_text_names_a_mistake_only_if_chance_would_hardly_give_it(
    places: int, is_named: bool, is_proven: bool
) -> None:
    tried = tuple(f"read.{k}" for k in range(300))
    found = sentence.of_search(Question(PAGE, "text", 0, 20, NEAR), replace(FOUND, places=places, done=tried))
    assert found is not None
    assert (bool(found.words), found.text.startswith(UNTOLD), found.is_proven) == (is_named, not is_named, is_proven)
    assert (found.mistakes, f"{places} independent difference" in found.text) == (("read.a",), True)


def test_what_other_inputs_refute_or_many_give_is_no_hint_and_a_grid_no_proof() -> None:
    def said(what: str, found: str, beyond: str) -> Explanation:
        names = tuple(f"pixels.{one}" for one in found.split())
        one = replace(FOUND, found=names, words=names, groups=("pixels",) * len(names), done=names, beyond=beyond)
        explanation = sentence.of_search(Question(PAGE, what, 1, 20, NEAR), one)
        assert explanation is not None
        return explanation

    whole = "all of the inputs"
    assert [said("input_ids", one, whole).is_proven for one in ("counts", "grid-six")] == [True, False]
    assert [len(said("input_ids", one, whole).words) for one in ("a b c", "a b c d")] == [3, 0]
    refuted = said("input_ids", "a", f"{NOT}images_spatial_crop")
    how = Description("count", "of another grid", 1.0)
    assert (refuted.words, sentence.beside(refuted, [how], is_only=False)) == ((), refuted)
    assert getattr(sentence.beside(refuted, [how]), "mistakes", None) == ()
