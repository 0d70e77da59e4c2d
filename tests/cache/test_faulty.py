"""Each test of the suite of the cache fails on a subject with the fault that it is there to see; peaks of memory."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.config import Config
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from suites.cache import test_reading
from suites.cache.conftest import _without_gradients  # noqa: F401 - is used by every test here
from suites.cache.walk import Peak, Walk, compare_peaks
from suites.contract.pages import write_page
from tests.cache.faulty import FAULTS, SeesTheFirst
from tests.cache.own import EXACT, text_ways

ON_A_GPU = {"test_decode_peaks_no_higher_than_prefill"}
GIVEN = {"stage": "clip", "kind": "values", "prefilled": 1, "name": "alpha"}
TESTS: dict[str, Callable[..., None]] = {
    name: function
    for path in Path(test_reading.__file__).parent.glob("test_*.py")
    for name, function in vars(import_module(f"suites.cache.{path.stem}")).items()
    if name.startswith("test_") and callable(function) and name not in ON_A_GPU
}


@pytest.fixture(scope="module")
def two_pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return write_page("portrait", folder), write_page("landscape", folder)


@pytest.fixture
def outcome(tiny: Engine[Any], two_pages: tuple[Path, Path], dsocr_config: Config) -> Callable[..., list[Comparison]]:
    """Put a subject to a test of the suite; give what does not pass, of some comparisons at least."""

    def put(test: str, make: Callable[[Engine[Any]], EngineSubject]) -> list[Comparison]:
        subject, made = make(tiny), list[Comparison]()

        def check(found: Iterable[Comparison], *stages: str) -> None:
            made.extend(found)

        config = replace(dsocr_config, checkpoint="synthetic:tiny", dtype="float32")
        at_hand = {
            **GIVEN,
            "walk": Walk.along(subject, two_pages[0], family=DEEPSEEK_OCR),
            "two_pages": two_pages,
            "first_page": two_pages[0],
            "tmp_path": two_pages[0].parent,
            "ways": EXACT,
            "text_ways": text_ways(subject, tiny.tokenizer, tiny),
            "dsocr_subject": subject,
            "dsocr_config": config,
            "family": DEEPSEEK_OCR,
            "read": test_reading.both_ways(subject, config),
            "dsocr_kv": KvProbe,
            "dsocr_check": check,
        }
        wanted = inspect.signature(TESTS[test]).parameters
        TESTS[test](**{name: at_hand[name] for name in wanted})
        return [one for one in made if not one.passes] if made else ["nothing was compared"]  # type: ignore[list-item]

    return put


def test_every_test_of_the_suite_is_here() -> None:
    assert FAULTS.keys() == TESTS.keys()


def test_a_page_of_which_vision_gives_nothing_is_reported(tiny: Engine[Any], tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match=r"no features for halves\.png in tiny; .* put another page first"):
        Walk.along(EngineSubject(tiny), write_page("halves", tmp_path), family=DEEPSEEK_OCR)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("test", "fault"), [(test, fault) for test, faults in FAULTS.items() for fault in faults])
def test_a_faulty_subject_does_not(outcome: Callable[..., list[Comparison]], test: str, fault: str) -> None:
    assert outcome(test, FAULTS[test][fault]) != []


needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")


@pytest.mark.parametrize(
    ("prefill", "decode", "verdict"),
    [
        (Peak(100, 900, 200), Peak(200, 900, 200), Verdict.MATCH),
        (Peak(100, 900, 200), Peak(200, 901, 200), Verdict.WRONG),
        (Peak(100, 900, 200), Peak(200, 905, 205), Verdict.MATCH),
        (Peak(100, 900, 200), Peak(200, 906, 205), Verdict.WRONG),
        (Peak(100, 900, 200), Peak(200, 901, 190), Verdict.WRONG),
        (Peak(100, 250, 200), Peak(200, 310, 205), Verdict.MATCH),
        (Peak(100, 250, 200), Peak(200, 311, 205), Verdict.WRONG),
        (Peak(0, 0, 0), Peak(0, 0, 0), Verdict.NOT_COMPARED),
        (Peak(0, 0, 0), Peak(0, 1, 0), Verdict.NOT_COMPARED),
        (Peak(500, 500, 500), Peak(500, 500, 500), Verdict.NOT_COMPARED),
    ],
    ids=[
        "as much",
        "more",
        "with what the steps keep",
        "more than they keep",
        "more, and less kept",
        "the cache copied",
        "more than copied",
        "nothing at all",
        "nothing in prefill",
        "nothing but weights",
    ],
)
def test_decode_may_peak_as_high_as_a_prefill_that_was_measured(prefill: Peak, decode: Peak, verdict: Verdict) -> None:
    compared = compare_peaks(prefill, decode, "cuda:1")
    assert compared.verdict is verdict
    assert compared.passes == (verdict is Verdict.MATCH)
    assert "cuda:1" in compared.measured


@needs_two_gpus
def test_a_peak_is_the_named_gpus() -> None:
    size = 64 << 20
    with torch.cuda.device(0):
        held, peak = Peak.of(lambda: torch.empty(size, dtype=torch.uint8, device="cuda:1"), "cuda:1")
        _, elsewhere = Peak.of(lambda: torch.empty(size, dtype=torch.uint8, device="cuda:1"), "cuda:0")
    assert peak.most - peak.before == held.nbytes
    assert elsewhere.most == elsewhere.before


@pytest.mark.dsocr_slow
def test_a_second_page_that_is_read_as_the_first_shows_state(outcome: Callable[..., list[Comparison]]) -> None:
    [found] = outcome("test_the_first_page_reads_the_same_again", SeesTheFirst)
    assert (found.what, found.verdict, found.signs) == ("text/another page", Verdict.WRONG, frozenset((Symptom.STATE,)))
