"""Tests of the engine as a reference: recordings come first, and its answers are marked as the engine's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.provenance import is_by_engine
from pytest_dsocr.reference.engine import EngineReference, EngineRuntime, open_engine_reference
from pytest_dsocr.reference.goldens import golden_folder
from pytest_dsocr.reference.opening import WantedReference, open_reference
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.crops import cropped_case

RECORDINGS = golden_folder() / "vendor"
MINI, TINY = WantedReference(resolve("mini")), WantedReference(resolve("synthetic:tiny"))
TOKENS = 4


@pytest.fixture(scope="module")
def alone() -> Iterator[EngineReference]:
    """Return an engine reference without a recording."""
    reference = EngineReference(TINY, time_limit_s=60)
    yield reference
    reference.close()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return cropped_case(tmp_path_factory.mktemp("pages"), "markdown", TOKENS)


def test_a_recording_answers_first_and_is_distinguished() -> None:
    """Without starting the engine."""
    reference = open_engine_reference([RECORDINGS], MINI)
    recorded = reference.recorded
    assert recorded is not None
    [page] = [page for page in shipped("dev-20") if page.stem == "receipt_086"]
    seen = reference.observe(make_case(page, "markdown", "gundam", family=DEEPSEEK_OCR))
    assert not is_by_engine(seen.provenance)
    assert reference.answering(seen) is recorded
    assert reference._engine.worker_pid is None


@pytest.mark.dsocr_slow
def test_it_answers_as_the_engine_in_this_process_does_and_is_not_taken_for_the_vendor(
    alone: EngineReference, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: a subject that bends the engine, as this test does, bends not its reference."""
    runtime = EngineRuntime.load("synthetic:tiny")
    here = runtime.observe(case)
    with monkeypatch.context() as patch:
        patch.setattr(DeepseekOCR, "sam", lambda self, pixels: 0)
        there = alone.observe(case)
    assert there.inputs.values is not None
    assert there.seams["prefill"].values is not None
    assert len(there.steps) == TOKENS
    assert (here.steps, here.output, here.prefill_best) == (there.steps, there.output, there.prefill_best)
    assert {name: seam.sha256 for name, seam in here.seams.items()} == {
        name: seam.sha256 for name, seam in there.seams.items()
    }
    assert there.inputs.images_ori == here.inputs.images_ori
    assert (here.inputs.values, here.seams["prefill"].values) == (None, None)
    assert alone.answering(there) is alone
    for made in (alone.provenance, there.provenance):
        assert is_by_engine(made)
        assert made is not None
        assert (made.vendor_sha256, made.key) == ({}, TINY.key)
    with recorder(tmp_path, alone.provenance) as target:
        target.add(case, there)
        target.publish()
    with pytest.raises(ReferenceFaultError, match="was made by the engine"):
        open_reference(tmp_path, TINY)
    own = runtime.subject.step
    monkeypatch.setattr(runtime.subject, "step", lambda state, token: -own(state, token))
    with pytest.raises(DsocrError, match="differently than it decodes them step by step"):
        runtime.observe(case)


def test_what_nothing_proves_it_equal_in_is_refused(case: Case) -> None:
    for changed, option in ({"dtype": "int8"}, "dtype=float32"), ({"attention": "sdpa"}, "attention=eager"):
        ways: dict[str, Any] = changed
        with pytest.raises(DsocrError, match=f"--dsocr-reference-{option}"):
            EngineReference(replace(TINY, **ways))
    with pytest.raises(ReferenceFaultError, match=r"the engine's worker could not answer observe\(.*other-kind"):
        EngineReference(replace(TINY, device="other-kind")).observe(case)


class Faster(EngineSubject):
    """A subject of a user's own, derived from the shipped one."""


def test_the_engine_is_no_reference_for_itself(alone: EngineReference, case: Case) -> None:
    own = engine_subject(Setup("synthetic:tiny"))
    for subject, name in (
        (own, "a.b:C"),
        (object(), "engine"),
        (object(), f"{engine_subject.__module__}:engine_subject"),
    ):
        with pytest.raises(NotRecordedError, match="the engine is the subject itself"):
            alone.check_other_than(subject, name, case)
    alone.check_other_than(Faster(own.engine), "a.b:Faster", case)
    alone.check_other_than(object(), "a.b:C", case)
