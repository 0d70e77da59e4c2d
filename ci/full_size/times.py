"""Stage times of the session and of the vendor's ``infer``, taken in turn on one page."""

from __future__ import annotations

import statistics
from typing import Any

from ci.full_size.case import WARM_UP_RUNS, Study
from pytest_dsocr.engine.result import Result
from pytest_dsocr.reference.vendor_code.observe import VendorRun


def time_in_turn(study: Study, repeats: int, *, autocast: bool) -> dict[str, Any]:
    """Alternate ``infer`` and the session on one page; medians in milliseconds, and their ratio."""
    session, case = study.session(autocast=autocast, instrument="timed"), study.case
    theirs, ours = [], []
    for turn in range(WARM_UP_RUNS + repeats):
        run = study.time_vendor()
        result = session.run(case.page, prompt=case.prompt, preset=case.preset)
        if turn >= WARM_UP_RUNS:
            theirs.append(vendor_stages(run))
            ours.append(session_stages(result))
    medians = [{name: statistics.median(t[name] for t in turns) for name in theirs[0]} for turns in (theirs, ours)]
    return {
        name: {
            "vendor_ms": medians[0][name],
            "session_ms": medians[1][name],
            "session_over_vendor": medians[1][name] / medians[0][name],
        }
        for name in medians[0]
    }


def session_stages(result: Result) -> dict[str, float]:
    """Give the session's times, fusion in the prefill as it is in the vendor's."""
    total_ms: dict[str, float] = {stage: times.total_ms for stage, times in result.stage_times.items()}
    decode_ms = total_ms.pop("decode") / result.counts.decode_steps
    return {**total_ms, "prefill": total_ms["prefill"] + total_ms["vision_fusion"], "decode_per_token": decode_ms}


def vendor_stages(run: VendorRun) -> dict[str, float]:
    """Name the vendor's times as the session's; its prefill holds fusion and the language model."""
    stages = {"tokenizer": run.prepare_ms, **run.by_stage}
    decode_ms = stages.pop("decode")
    return {**stages, "decode_per_token": decode_ms}


def step_growth(study: Study, steps: int) -> dict[str, float]:
    """Time single decode steps early and late in one output: a step's cost must not grow with its index."""
    session, case = study.session(autocast=study.on_gpu, instrument="timed"), study.case
    state = session.prefill(session.prepare(case.page, prompt=case.prompt, preset=case.preset))
    session.stages.clear()
    for _ in range(steps):
        session.decode_step(state, 100)
    runs_ms = session.stages.times()["decode"].runs_ms
    tenth = steps // 10
    return {"early_ms": statistics.median(runs_ms[tenth : 2 * tenth]), "late_ms": statistics.median(runs_ms[-tenth:])}
