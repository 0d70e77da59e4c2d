"""Scripts that show a wrong input or output that is no tensor, with both sides' values."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.presets import tokens_per_side
from pytest_dsocr.explain.reproducer import LIMIT, Data, write
from pytest_dsocr.records.reference_result import Runs, SpanSeen

EXACT = {"limit": 0}


def reproduce(report: CaseReport, out: Path | None) -> None:
    """Write the script of a case's first divergence below the result's folder, if it is no tensor of a stage."""
    if out is None or report.divergence is None or report.fault is not None:
        return
    what = report.divergence.begins or report.divergence.first.what
    if made := VALUES.get(what):
        data = made(report, what)
        if data is not None:
            write(out, what, report.case.id, *data)


def _of_rows(report: CaseReport, what: str) -> tuple[Data, str] | None:
    """Return ids or the mask; the rule has the text's tokens, and places the image's between them."""
    actual, expected = report.exchange.answer.inputs, report.exchange.expected.inputs
    if actual is None:
        return None
    sides = (expected, actual)
    right, gave = (_row(getattr(one, what)) for one in sides)
    data: Data = {**EXACT, "input": np.array(report.case.prompt), "expected": right, "actual": gave}
    places = np.flatnonzero(_row(expected.images_seq_mask))
    if report.case.is_several or not len(places):
        return data, "values"
    preset, [grid] = report.case.preset, expected.images_spatial_crop
    sides_of = [tokens_per_side(px) for px in (preset.view_size, preset.image_size)]
    layout = [*sides_of, *grid, preset.layout.newlines, right[places[0]]]
    text = {"before": right[: places[0]], "after": right[places[-1] + 1 :]}
    return {**data, **text, "layout": np.array(layout, np.int64)}, "ids"


def _row(runs: Runs) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([value for value, length in runs for _ in range(length)], np.int64)


def _of_grid(report: CaseReport, what: str) -> tuple[Data, str] | None:
    actual, expected = report.exchange.answer.inputs, report.exchange.expected.inputs
    if actual is None or report.case.is_several:
        return None
    grids = {"expected": expected.images_spatial_crop, "actual": actual.images_spatial_crop}
    size = load_image(report.case.page).size
    return {**EXACT, "input": np.array(size), **{name: np.array(one) for name, one in grids.items()}}, "values"


def _of_text(report: CaseReport, what: str) -> tuple[Data, str] | None:
    """Return texts as arrays of characters; a file is made of the output's text."""
    answer, output = report.exchange.answer, report.exchange.expected.output
    is_file = what == "result.mmd"
    right, gave = (output.mmd, answer.mmd) if is_file else (output.text, answer.text)
    data = {"expected": np.array(list(right)), "actual": np.array(list(gave or ""))}
    return {**EXACT, **data, **({"input": np.array(answer.text)} if is_file else {})}, "values"


def _of_boxes(report: CaseReport, what: str) -> tuple[Data, str] | None:
    answer, output = report.exchange.answer, report.exchange.expected.output
    sides = {"expected": output.spans, "actual": answer.spans}
    return {**EXACT, "input": np.array(answer.text), **{name: _boxes(one) for name, one in sides.items()}}, "values"


def _boxes(spans: tuple[SpanSeen, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([box for span in spans for box in span.boxes], np.float64).reshape(-1, 4)


def _of_steps(report: CaseReport, what: str) -> tuple[Data, str] | None:
    """Return the best logits of the first step where the subject's best token or its logit is another."""
    steps, forced = report.exchange.expected.steps, report.exchange.answer.forced or ()
    pairs = [(k, one, own) for k, (one, own) in enumerate(zip(steps, forced, strict=False)) if one.best != own.best]
    if not pairs:
        return None
    other = next((pair for pair in pairs if pair[1].token != pair[2].token), None)
    place, one, own = other or max(
        pairs, key=lambda pair: float(np.abs(np.subtract(pair[1].best.logits, pair[2].at_reference)).max())
    )
    so_far = [*report.exchange.expected.inputs.prompt_ids, *(step.token for step in steps[:place])]
    tokens = {"input": np.array(so_far), "tokens": np.array(one.best.ids)}
    logits = {"expected": np.array(one.best.logits), "actual": np.array(own.at_reference)}
    return {**tokens, **logits, "limit": LIMIT}, "values"


VALUES: Mapping[str, Callable[[CaseReport, str], tuple[Data, str] | None]] = {
    **dict.fromkeys(("input_ids", "images_seq_mask"), _of_rows),
    "images_spatial_crop": _of_grid,
    **dict.fromkeys(("read", "text", "result.mmd"), _of_text),
    **dict.fromkeys(("spans", "boxes"), _of_boxes),
    **dict.fromkeys(("logits", "tokens"), _of_steps),
}
"""Makers of both sides' values, by the comparison that breaks first."""
