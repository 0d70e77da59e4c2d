"""Seams, teacher-forced logits and tokens of a session, held against one run of the vendor's ``infer``."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ci.full_size.case import Study
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.policy import DEFAULT_NGRAM, NgramBan
from pytest_dsocr.engine.greedy import pick
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.reference.vendor_code.observe import VendorRun


def compare(case: Study, run: VendorRun, model: Any, *, autocast: bool) -> dict[str, Any]:
    """Compare every seam, and the logits after each of the vendor's tokens."""
    session = case.session(model, autocast=autocast)
    inputs = case.prepare(session)
    state = session.prefill(inputs)
    seams = seam_errors(state, run)
    forced = [state.logits[0], *(session.decode_step(state, token)[0] for token in run.token_ids[:-1])]
    mine, theirs = torch.stack(forced), run.stacked_logits.to(model.device)
    differing = (mine.argmax(-1) != theirs.argmax(-1)).nonzero().flatten().tolist()
    return {
        "seam_relative_error": seams,
        "prefill_logits_relative_error": relative(mine[0], theirs[0]),
        "forced_logits_relative_error_max": max(map(relative, mine, theirs)),
        "top1_agreement": [len(mine) - len(differing), len(mine)],
        "disagreements": [margin_at(step, mine, theirs) for step in differing],
        "tokens_part_at": parting(mine, inputs.input_ids[0].tolist(), run.token_ids),
    }


def seam_errors(state: DecodeState[Any], run: VendorRun) -> dict[str, float]:
    """Relative error of each vision seam."""
    [vision], theirs = state.visions, run.seams
    return {name: relative(mine, theirs[name]) for name, mine in vision.seams.items()}


def relative(mine: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over the norm of the reference, in float64; infinite where either holds a NaN."""
    a, b = mine.double(), theirs.double()
    error = float((a - b).norm() / b.norm())
    return error if math.isfinite(error) else math.inf


def margin_at(k: int, mine: Tensor, theirs: Tensor) -> dict[str, float]:
    """Say how far apart the reference's best two were where the best tokens differ, in bf16 steps of the best."""
    top = theirs[k].topk(2).values
    ulp = tolerances("bfloat16").ulp(float(top[0]))
    error = float((mine[k] - theirs[k]).abs().max())
    return {"step": k, "margin": float(top[0] - top[1]), "bf16_ulp": ulp, "largest_logit_error": error}


def parting(mine: Tensor, prompt: list[int], tokens: list[int]) -> int | None:
    """Give the first step at which free greedy decoding leaves the vendor's ``tokens``, or None.

    Up to there its history is theirs, so the teacher-forced logits ``[steps, V]`` are its own.
    """
    ban = NgramBan(DEFAULT_NGRAM, prompt)
    for step, token in enumerate(tokens):
        if pick(mine[step : step + 1], [ban.banned()]) != [token]:
            return step
        ban.push(token)
    return None
