"""The session in the vendor's place: equal to what was recorded, apart from this process, not taken for the vendor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.families import VISION_SEAMS
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.answer import Answer, ForcedStep
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.level import Level
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.provenance import SESSION_STANDS_IN, is_by_session
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.goldens import golden_folder
from pytest_dsocr.reference.opening import Wanted, open_reference
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.session import SessionReference, SessionRuntime, open_session_reference
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from suites.contract.pages import write_page

RECORDINGS = golden_folder() / "vendor"
MINI, TINY = Wanted(resolve("mini")), Wanted(resolve("synthetic:tiny"))
TOKENS = 4


@pytest.fixture(autouse=True)
def _started_at_once(warm: None) -> None:
    """The session's process."""


@pytest.fixture(scope="module")
def alone(warm_python: Path) -> Iterator[SessionReference]:
    """Without any recording behind it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python))
        reference = SessionReference(TINY, time_limit_s=60)
    yield reference
    reference.close()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("square", tmp_path_factory.mktemp("pages")), "markdown", "tiny", TOKENS)


def as_answer(seen: Observation, expected: Observation) -> Answer:
    """What a subject would have answered that saw ``seen`` where the reference saw ``expected``."""
    logits = [dict(zip(*step.best, strict=True)) for step in seen.steps]
    asked = [
        tuple(own.get(one, float("nan")) for one in step.best.ids)
        for own, step in zip(logits, expected.steps, strict=True)
    ]
    return Answer(
        seen.case_id,
        Level.MODULES,
        seen.output.text,
        seen.output.spans,
        seen.output.mmd,
        seen.output.artefacts,
        seen.inputs,
        seen.seams,
        frozenset(VISION_SEAMS),
        seen.prefill_best,
        tuple(ForcedStep(step.token, step.best, found) for step, found in zip(seen.steps, asked, strict=True)),
    )


def test_it_is_what_was_recorded_of_the_vendor_though_this_process_computes_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a shipped page, to its end: a subject that bends the engine, as this test does, bends not its reference."""
    monkeypatch.setattr(DeepseekOCR, "sam", lambda self, pixels: 0)
    [page] = [page for page in shipped("dev-20") if page.stem == "figures_009"]
    case, recorded = make_case(page, "markdown", "gundam"), open_reference(RECORDINGS, MINI)
    reference = SessionReference(MINI)
    try:
        seen, expected = reference.observe(case), recorded.observe(case)
    finally:
        reference.close()
    assert [*seen.seams] == [*expected.seams]
    found = list(compare_observations(as_answer(seen, expected), expected, tolerances("float32")))
    assert {one.verdict for one in found} == {Verdict.MATCH, Verdict.DRIFT}, [one for one in found if not one.passes]
    assert len(found) > 30
    assert seen.token_ids == expected.token_ids
    assert seen.output.artefacts.keys() == expected.output.artefacts.keys()
    whole = {name for name in seen.seams if "/" not in name}
    assert all(seen.seams[name].values is not None for name in whole)
    assert seen.inputs.values is not None


def test_it_answers_as_the_session_in_this_process_does(alone: SessionReference, case: Case) -> None:
    here, there = SessionRuntime.load("synthetic:tiny").observe(case), alone.observe(case)
    assert len(there.steps) == TOKENS
    assert (here.steps, here.output, here.prefill_best) == (there.steps, there.output, there.prefill_best)
    assert {name: seam.sha256 for name, seam in here.seams.items()} == {
        name: seam.sha256 for name, seam in there.seams.items()
    }
    assert alone.inputs(case).images_ori == here.inputs.images_ori
    assert (here.inputs.values, here.seams["prefill"].values) == (None, None)


def test_its_word_says_whose_it_is(alone: SessionReference, case: Case) -> None:
    seen = alone.observe(case)
    for told in (alone.provenance, seen.provenance):
        assert is_by_session(told)
        assert told is not None
        assert (told.vendor_sha256, told.overrides) == ({}, (SESSION_STANDS_IN,))
        assert (told.checkpoint_sha256, told.resampling) == (TINY.checkpoint.sha256, resampling())
        assert {"torch", "pillow"} <= told.versions.keys()
    assert alone.provenance.key == TINY.key
    assert alone.answering(seen) is alone


def test_a_recording_answers_first_and_is_told_apart() -> None:
    """Without starting the session."""
    reference = open_session_reference([RECORDINGS], MINI)
    recorded = reference.recorded
    assert recorded is not None
    [page] = [page for page in shipped("dev-20") if page.stem == "receipt_086"]
    seen = reference.observe(make_case(page, "markdown", "gundam"))
    assert not is_by_session(seen.provenance)
    assert reference.answering(seen) is recorded
    assert reference._session.worker_pid is None


def test_a_recording_of_its_word_is_not_taken_for_the_vendors(
    alone: SessionReference, case: Case, tmp_path: Path
) -> None:
    with recorder(tmp_path, alone.provenance) as target:
        target.add(case, alone.observe(case))
        target.publish()
    with pytest.raises(ReferenceFaultError, match="was made by the session"):
        open_reference(tmp_path, TINY)


def test_a_session_that_is_not_to_be_had_is_an_error_and_no_verdict(case: Case) -> None:
    with pytest.raises(ReferenceFaultError, match=r"the session's worker could not answer observe\(.*other-kind"):
        SessionReference(replace(TINY, device="other-kind")).observe(case)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"dtype": "float16"}, "--dsocr-reference-dtype=float32"),
        ({"attention": "sdpa"}, "--dsocr-reference-attention=eager"),
    ],
)
def test_what_nothing_proves_it_equal_in_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(DsocrError, match=told):
        SessionReference(replace(TINY, **changed))


def test_times_and_operations_are_not_the_vendors(alone: SessionReference, case: Case) -> None:
    for method in (alone.stage_times, alone.flops):
        with pytest.raises(NotRecordedError, match="give the vendor's folder"):
            method(case)


class Faster(SessionSubject):
    """A subject of a user's own, derived from the shipped one."""


@pytest.mark.parametrize("name", ["session", "pytest_dsocr.subjects.session:session_subject", "a.b:C"])
def test_the_session_is_no_reference_for_itself(alone: SessionReference, case: Case, name: str) -> None:
    own = session_subject(Setup("synthetic:tiny"))
    with pytest.raises(NotRecordedError, match="the session is the subject itself"):
        alone.check_other_than(own, name, case)
    alone.check_other_than(Faster(own.session), "a.b:Faster", case)
    alone.check_other_than(object(), "a.b:C", case)


def test_one_that_reads_otherwise_than_it_decodes_stands_in_for_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SessionRuntime.load("synthetic:tiny")
    own = runtime.subject.step
    monkeypatch.setattr(runtime.subject, "step", lambda state, token: -own(state, token))
    with pytest.raises(DsocrError, match="differently than it decodes them step by step"):
        runtime.observe(case)
