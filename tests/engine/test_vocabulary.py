"""What the ids of a synthetic vocabulary say: bytes, marks, spans with boxes, and numbers."""

from __future__ import annotations

import pytest

from pytest_dsocr.contract.markup import DET, DET_END, REF, REF_END, Span, parse
from pytest_dsocr.engine.tokenizer import Tokenizer

LARGE, SMALL = Tokenizer.byte_level(129_280), Tokenizer.byte_level(512)
FIRST_ORDINARY = 3 + 256
ORDINARY = [*range(FIRST_ORDINARY, 128_815), *range(128_827, 129_280)]
LABELS = ("title", "sub_title", "text", "image", "image_caption", "table", "equation")


def said(token_id: int, tokenizer: Tokenizer = LARGE) -> str:
    return tokenizer.decode([token_id])


@pytest.fixture(scope="module")
def spans() -> dict[int, Span]:
    """Every eighth ordinary id, as it is read."""
    found = {}
    for token_id in ORDINARY:
        if token_id % 8 == 0:
            markup = parse(said(token_id))
            [found[token_id]] = markup.spans
            assert markup.problems == ()
    return found


def test_every_eighth_ordinary_id_is_one_span_and_a_line_break(spans: dict[int, Span]) -> None:
    assert len(spans) == 16_125
    assert all(said(token_id) == span.raw + "\n" for token_id, span in spans.items())


def test_every_span_has_boxes_on_the_page(spans: dict[int, Span]) -> None:
    for token_id, span in spans.items():
        assert len(span.boxes) == (2 if token_id % 40 == 0 else 1)
        for x1, y1, x2, y2 in span.boxes:
            assert 0 <= x1 < x2 <= 999
            assert 0 <= y1 < y2 <= 999


def test_labels_take_turns_and_boxes_tell_ids_apart(spans: dict[int, Span]) -> None:
    labels = [span.label for span in spans.values()]
    start = LABELS.index(labels[0])
    assert labels[:7] == [*LABELS[start:], *LABELS[:start]]
    assert set(labels) == set(LABELS)
    assert len({span.boxes for span in spans.values()}) > 0.99 * len(spans)


def test_recorded_spans(spans: dict[int, Span]) -> None:
    """Recordings with synthetic weights hold them."""
    assert spans[264].raw == "<|ref|>table<|/ref|><|det|>[[362, 123, 814, 153]]<|/det|>"
    assert spans[280].raw == "<|ref|>title<|/ref|><|det|>[[142, 485, 251, 549], [32, 216, 194, 297]]<|/det|>"


def test_every_other_ordinary_id_is_its_number() -> None:
    assert all(said(token_id) == f"<{token_id}>" for token_id in ORDINARY if token_id % 8)


@pytest.mark.parametrize(("token_id", "text"), [(8, "\x05"), (64, "="), (128, "}"), (128_816, REF), (128_824, "</tr>")])
def test_bytes_and_marks_at_eighth_ids_stay_what_they_are(token_id: int, text: str) -> None:
    assert said(token_id) == text


def test_a_smaller_vocabulary_says_the_same_up_to_its_marks() -> None:
    assert [said(token_id, SMALL) for token_id in range(500)] == [said(token_id) for token_id in range(500)]
    assert [said(token_id, SMALL) for token_id in (500, 501, 504, 511)] == ["<image>", REF, DET_END, "<|Assistant|>"]


def test_a_span_is_said_by_one_token_and_read_byte_by_byte() -> None:
    """A prompt that quotes a span must not become the token that says it."""
    ids = LARGE.encode(said(264))
    marks = [LARGE.encode(mark)[0] for mark in (REF, REF_END, DET, DET_END)]
    assert [token_id for token_id in ids if token_id >= FIRST_ORDINARY] == marks
