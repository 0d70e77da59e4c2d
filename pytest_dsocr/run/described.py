"""The description of a case's first divergence: the describer of its comparison, given both sides' values."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.output import ONE_SIDED
from pytest_dsocr.contract.artifacts import figure_of
from pytest_dsocr.contract.drawing import draw_boxes, place
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.describe.boxes import of_boxes, units_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.files import Figure, Figures, of_files
from pytest_dsocr.describe.ids import Vocabulary, of_counts, of_grids, of_ids, of_mask
from pytest_dsocr.describe.measured import Measuring, measured, measuring
from pytest_dsocr.describe.several_texts import TextPair, of_pages
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.describe.state import PageSeen, ReadingSeen, of_other_page, of_readings
from pytest_dsocr.describe.texts import of_texts
from pytest_dsocr.records.reference_result import Runs
from pytest_dsocr.subjects.calls import current

NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")
"""Numbers of a text; boxes are written in them."""

Pages = Mapping[str, PageSeen]
"""Pages that the run has read, by their cases."""
Describer = Callable[[CaseReport, Vocabulary], Iterator[Description]]


def described(report: CaseReport, vocabulary: Vocabulary, pages: Pages) -> dict[str, Description]:
    """Return the simplest relation of the first divergence, or its anatomy; nothing without a describer for it."""
    if (divergence := report.divergence) is None:
        return {}
    found = relation(divergence.begins or divergence.first.what, report, vocabulary, _state(report, pages))
    return {divergence.first.what: found} if found else {}


@contextmanager
def noting_errors() -> Iterator[None]:
    """Note the errors of describers, which then end themselves alone."""
    with measuring(Measuring()) as now:
        yield
    for line in now.lines:
        current().note(line)


def relation(
    what: str, report: CaseReport, vocabulary: Vocabulary, others: Iterable[Description] = ()
) -> Description | None:
    """Return the simplest relation of a comparison's values, among ``others`` too; None without a describer for it."""
    own = DESCRIBERS.get(what)
    return simplest(chain(others, measured(own, report, vocabulary) if own else ()))


def seen(report: CaseReport) -> PageSeen:
    """Return a case's page as the reference reads it."""
    expected, answer = report.exchange.expected, report.exchange.answer
    own = None if answer.fault or "read" in answer.lost else answer.text
    return PageSeen(expected.output.text, sum(length for _, length in expected.inputs.input_ids), own)


def _state(report: CaseReport, pages: Pages) -> Iterator[Description]:
    """Yield relations to what was read before: of several readings, or of a wrong text after right steps."""
    own, what = report.case.id, report.divergence.first.what if report.divergence else ""
    if report.readings is not None:
        failing = report.readings.failing
        made = [ReadingSeen(one.after, one.place, k in failing) for k, one in enumerate(report.readings.made, 1)]
        yield from measured(of_readings, made, own, pages)
    if what in ("read", "text"):
        yield from measured(of_other_page, report.exchange.answer.text, own, pages)
        texts = [TextPair(one.own, one.text) for one in pages.values() if one.own is not None]
        yield from measured(of_pages, texts)


def _of_ids(report: CaseReport, vocabulary: Vocabulary) -> Iterator[Description]:
    actual, expected = report.exchange.answer.inputs, report.exchange.expected.inputs
    if actual is None:
        return
    image = vocabulary.tokenizer.special.image
    own, other = actual.prompt_ids, expected.prompt_ids
    is_other_count = own.count(image) != other.count(image) and _without(own, image) == _without(other, image)
    if is_other_count and len(expected.images_spatial_crop) == 1:
        grids = actual.images_spatial_crop[0] if actual.images_spatial_crop else None, expected.images_spatial_crop[0]
        yield from of_counts(own.count(image), report.case.preset, grids[1], grids[0])
    yield from of_ids(own, other, vocabulary)


def _without(ids: list[int], image: int) -> list[int]:
    return [one for one in ids if one != image]


def _of_mask(report: CaseReport, vocabulary: Vocabulary) -> Iterator[Description]:
    actual, expected = report.exchange.answer.inputs, report.exchange.expected.inputs
    if actual is not None:
        own, other = _values(actual.images_seq_mask), _values(expected.images_seq_mask)
        yield from of_mask(own, other, actual.prompt_ids, vocabulary.tokenizer.special.image)


def _values(runs: Runs) -> list[bool]:
    return [bool(value) for value, length in runs for _ in range(length)]


def _of_grids(report: CaseReport, _: Vocabulary) -> Iterator[Description]:
    if (actual := report.exchange.answer.inputs) is not None:
        yield from of_grids(actual.images_spatial_crop, report.exchange.expected.inputs.images_spatial_crop)


def _of_text(report: CaseReport, vocabulary: Vocabulary) -> Iterator[Description]:
    actual, expected = report.exchange.answer.text, report.exchange.expected.output.text
    if NUMBERS.sub("0", actual) == NUMBERS.sub("0", expected):
        yield from (one for one in _of_boxes(report, vocabulary) if one.explains)
    yield from of_texts(actual, expected)


def _of_boxes(report: CaseReport, _: Vocabulary) -> Iterator[Description]:
    answer, expected, case = report.exchange.answer, report.exchange.expected.output, report.case
    own, other = ([(span.label, box) for span in of for box in span.boxes] for of in (answer.spans, expected.spans))
    units = () if case.is_several else units_of(load_image(case.page).size, case.preset)
    yield from of_boxes(own, other, units)


def _of_files(report: CaseReport, _: Vocabulary) -> Iterator[Description]:
    case, actual = report.case, report.exchange.answer.artefacts
    if actual is None or case.is_several:
        return
    output = report.exchange.expected.output
    page, markup = load_image(case.page), parse(output.text, case.family.form)
    boxes = [box for span in markup.spans for box in span.boxes]
    placed = zip(place(markup.spans, *page.size), boxes, strict=True)
    of = {figure_of(None, one.figure): (box, one.pixels) for one, box in placed if one.figure is not None}
    shared = {name: where for name, where in of.items() if name in actual and name in output.artefacts}
    figures = {name: Figure(*where, actual[name], output.artefacts[name]) for name, where in shared.items()}
    own, other = ({name: one for name, one in of.items() if name not in ONE_SIDED} for of in (actual, output.artefacts))
    yield from of_files(own, other, Figures(figures, page, draw_boxes(page, markup.spans)))


DESCRIBERS: Mapping[str, Describer] = {
    "input_ids": _of_ids,
    "images_seq_mask": _of_mask,
    "images_spatial_crop": _of_grids,
    **dict.fromkeys(("read", "text"), _of_text),
    **dict.fromkeys(("spans", "boxes"), _of_boxes),
    "result.mmd": lambda report, _: of_texts(report.exchange.answer.mmd or "", report.exchange.expected.output.mmd),
    "artefacts": _of_files,
}
"""Describers by the comparison that breaks first."""
