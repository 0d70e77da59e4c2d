"""The session against recordings of the vendor's real ``infer``, made by ``suites/vendor_live/record_session.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.engine.session import Session
from suites.contract.pages import write_page
from suites.recordings import recording_of, spaced

GOLDEN = recording_of("session")
TOLERANCE = 1e-4  # of a seam's norm: the recording was made on another processor


@pytest.fixture(scope="module")
def session() -> Session[Any]:
    return Session.from_checkpoint(GOLDEN["checkpoint"])


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['page']}-{case['preset']}-{case['prompt']}")
def test_seams_and_tokens_are_the_recorded_ones(session: Session[Any], case: dict[str, Any], tmp_path: Path) -> None:
    page = write_page(case["page"], tmp_path)
    inputs = session.prepare(page, prompt=case["prompt"], preset=case["preset"])
    assert inputs.prompt_tokens == case["prompt_tokens"]
    mine = seams(session.prefill(inputs))
    assert mine.keys() == case["seams"].keys()
    for name, recorded in case["seams"].items():
        check_seam(name, mine[name], recorded)
    result = session.run_prepared(inputs, max_new_tokens=len(case["token_ids"]))
    assert list(result.token_ids) == case["token_ids"]


def test_the_recordings_can_tell_pages_presets_and_prompts_apart() -> None:
    outputs = {tuple(case["token_ids"]) for case in GOLDEN["cases"]}
    assert len(outputs) == len(GOLDEN["cases"])
    for case in GOLDEN["cases"]:
        assert len(set(case["token_ids"])) > len(case["token_ids"]) // 4, "an output stuck on few tokens tells little"


def seams(state: DecodeState[Any]) -> dict[str, Tensor]:
    [vision] = state.visions
    return {**vision.seams, "prefill": state.logits[0]}


def check_seam(name: str, mine: Tensor, recorded: dict[str, Any]) -> None:
    assert list(mine.shape) == recorded["shape"], name
    flat = mine.double().flatten()
    assert float(flat.norm()) == pytest.approx(recorded["norm"], rel=TOLERANCE), name
    sample = spaced(flat, len(recorded["sample"]))
    scale = recorded["norm"] / len(flat) ** 0.5
    torch.testing.assert_close(
        sample, torch.tensor(recorded["sample"], dtype=torch.float64), rtol=TOLERANCE, atol=TOLERANCE * scale
    )
