"""Mistakes planted in a subject's parts, alone and together: what the reference's tensors make right in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.cases import substitution
from pytest_dsocr.cases.substitution import substitute
from pytest_dsocr.compare.case import CaseReport, Exchange, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.level import Level
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import write_page
from tests.subjects.examples.one_method import OneMethod
from tests.subjects.seen import seen

CHECKPOINT = "synthetic:tiny"
NEW_TOKENS = 12
LIMITS = tolerances("float32")

VISION_RIGHT = "vision is right when given the reference's inputs"
VISION_WRONG = "vision is still wrong when given the reference's inputs: vision is wrong by itself"
INPUTS_RIGHT = "tokens are right when given the reference's inputs"
INPUTS_WRONG = "tokens are still wrong when given the reference's inputs"
BOTH_RIGHT = "tokens are right when given the reference's inputs and vision features"
BOTH_WRONG = (
    "tokens are still wrong when given the reference's inputs and vision features: the decoder is wrong by itself"
)
FEATURES_RIGHT = "tokens are right when given the reference's vision features"
FEATURES_WRONG = "tokens are still wrong when given the reference's vision features: the decoder is wrong by itself"


class Planted(SessionSubject):
    """A session whose parts are wrong where they are told to be."""

    def __init__(self, session: Engine[Any], *wrong: str) -> None:
        super().__init__(session)
        self.wrong = wrong

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        inputs = super().inputs(page, prompt=prompt, preset=preset)
        if "grid's dtype" in self.wrong:
            inputs["images_spatial_crop"] = inputs["images_spatial_crop"].int()
        if "inputs" in self.wrong:
            inputs["images_ori"] = inputs["images_ori"].flip(-1)
        return inputs

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        seams = super().vision(inputs)
        if "failing" in self.wrong:
            raise RuntimeError("patched as well")
        if "sam" in self.wrong:
            seams["sam.page"] = 2 * seams["sam.page"]
        if "vision" in self.wrong:
            seams["vision_fusion"] = seams["vision_fusion"].roll(7, dims=0)
        if "silent" in self.wrong:
            return {}
        return seams

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        if "picky" in self.wrong and vision_fusion is not None:
            raise ValueError("these are not my features")
        if "decoder" in self.wrong and vision_fusion is not None:
            vision_fusion = 0.5 * vision_fusion
        return super().prefill(inputs, vision_fusion)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    page = write_page("portrait", tmp_path_factory.mktemp("pages"))
    return make_case(page, "free", "tiny", NEW_TOKENS)


@pytest.fixture(scope="module")
def live(tiny: Engine[Any], case: Case) -> Observation:
    return seen(tiny, case, keep_values=True)


@pytest.fixture(scope="module")
def recorded(tiny: Engine[Any], case: Case) -> Observation:
    return seen(tiny, case)


def asked(subject: Any, case: Case, expected: Observation) -> CaseReport:
    return judge(Exchange(case, follow(subject, case, expected), expected, 0.0, 0.0), LIMITS)


PLANTED = [
    (("inputs",), (VISION_RIGHT, INPUTS_RIGHT)),
    (("vision",), (FEATURES_RIGHT,)),
    (("decoder",), (FEATURES_WRONG,)),
    (("grid's dtype", "sam"), (VISION_WRONG,)),
    (("inputs", "vision"), (VISION_WRONG, INPUTS_WRONG, BOTH_RIGHT)),
    (("inputs", "decoder"), (VISION_RIGHT, INPUTS_WRONG, BOTH_WRONG)),
    (("inputs", "vision", "decoder"), (VISION_WRONG, INPUTS_WRONG, BOTH_WRONG)),
    (("silent",), (FEATURES_RIGHT,)),
]
LENT_BY_A_DONOR = [("inputs", "vision")]
"""Of a recording it makes no difference but to who lends inputs, features or both."""


@pytest.mark.parametrize(
    ("kind", "wrong", "findings"),
    [
        pytest.param(kind, wrong, findings, id=f"{', '.join(wrong)}-{kind}")
        for wrong, findings in PLANTED
        for kind in ("live", "recorded")
        if kind == "live" or wrong in LENT_BY_A_DONOR
    ],
)
def test_each_part_is_told_to_be_wrong_by_itself_or_not(
    kind: str,
    wrong: tuple[str, ...],
    findings: tuple[str, ...],
    tiny: Engine[Any],
    case: Case,
    request: pytest.FixtureRequest,
) -> None:
    expected: Observation = request.getfixturevalue(kind)
    subject = Planted(tiny, *wrong)
    found = substitute(subject, asked(subject, case, expected), lambda: SessionSubject(tiny))
    assert found == findings


def unneeded() -> Any:
    raise AssertionError("a donor was made and nothing is asked of it")


@pytest.mark.parametrize("kind", ["live", "recorded"])
def test_a_donor_is_made_only_for_a_recording_and_a_wrong_case(
    kind: str, tiny: Engine[Any], case: Case, request: pytest.FixtureRequest
) -> None:
    expected: Observation = request.getfixturevalue(kind)
    subject = Planted(tiny, *(["vision"] if kind == "live" else []))
    assert len(substitute(subject, asked(subject, case, expected), unneeded)) == (kind == "live")


@pytest.mark.parametrize(
    ("donor", "findings"),
    [
        (None, ()),
        (("inputs",), ()),
        (("vision",), (VISION_WRONG, INPUTS_WRONG)),
        (("failing",), ()),
    ],
)
def test_a_donor_lends_what_agrees_with_the_recording_and_no_more(
    donor: tuple[str, ...] | None, findings: tuple[str, ...], tiny: Engine[Any], case: Case, recorded: Observation
) -> None:
    subject = Planted(tiny, "inputs", "vision")
    lent = None if donor is None else lambda: Planted(tiny, *donor)
    assert substitute(subject, asked(subject, case, recorded), lent) == findings


def test_what_a_donor_drifts_by_is_not_called_the_references(
    tiny: Engine[Any], case: Case, recorded: Observation
) -> None:
    """Of another dtype or device than the recording's it may be within the run's limits, and be no more right."""

    class Drifting(SessionSubject):
        def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor * 1.01 for name, tensor in super().vision(inputs).items()}

    subject = Planted(tiny, "vision")
    wider = judge(asked(subject, case, recorded).exchange, tolerances("bfloat16"))
    assert substitute(subject, wider, lambda: Drifting(tiny)) == ()


def test_a_subject_that_cannot_take_the_references_tensors_is_told(
    tiny: Engine[Any], case: Case, live: Observation
) -> None:
    subject = Planted(tiny, "silent", "picky")
    [finding] = substitute(subject, asked(subject, case, live))
    assert finding.startswith("the reference's tensors were not tried further: the subject's prefill raised in prefill")


def test_what_is_wrong_in_the_text_alone_or_without_stages_tells_nothing(
    tiny: Engine[Any], case: Case, live: Observation
) -> None:
    class Misread(SessionSubject):
        def text_of(self, token_ids: Any) -> str:
            return "other"

    subject = Misread(tiny)
    assert not asked(subject, case, live).passes
    assert substitute(subject, asked(subject, case, live), unneeded) == ()
    textual = OneMethod(Setup(CHECKPOINT))
    report = asked(textual, case, replace(live, output=replace(live.output, text="other")))
    assert report.exchange.answer.level is Level.TEXT
    assert substitute(textual, report, unneeded) == ()


def test_tensors_are_lent_in_the_subjects_own_dtype(
    tiny: Engine[Any], case: Case, live: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live reference on another device, or in another dtype, lends what this subject can compute with."""
    subject, dtypes = Planted(tiny, "vision"), []
    report = asked(subject, case, live)
    lent: Callable[..., substitution.Lent] = substitution._lent

    def doubled(*given: Any) -> substitution.Lent:
        found = lent(*given)
        assert found.vision_fusion is not None
        return replace(found, vision_fusion=found.vision_fusion.double())

    monkeypatch.setattr(substitution, "_lent", doubled)
    prefill = subject.prefill

    def noted(inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        assert vision_fusion is not None
        dtypes.append(vision_fusion.dtype)
        return prefill(inputs, vision_fusion)

    monkeypatch.setattr(subject, "prefill", noted)
    assert substitute(subject, report) == (FEATURES_RIGHT,)
    assert dtypes == [torch.float32]
