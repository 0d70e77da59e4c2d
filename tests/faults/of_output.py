"""Mistakes between tokens and files."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from pytest_dsocr.contract import artifacts, drawing, markup, mmd
from pytest_dsocr.engine import session
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.registry import FIGURES, fault

LATEX = "a page with formulas"


def _decoded(patch: pytest.MonkeyPatch, change: Any) -> None:
    right = Tokenizer.decode
    patch.setattr(Tokenizer, "decode", lambda self, ids: change(right, self, ids))


@fault(
    "DTK-01",
    "Tokens decoded one by one",
    "postprocess",
    "odd characters",
    "decoded together",
    "a character of two tokens",
)
def one_by_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Half a character becomes a mark of replacement."""
    _decoded(patch, lambda right, self, ids: "".join(right(self, [token]) for token in ids))


@fault("DTK-02", "Byte marks in the text", "postprocess", "Ġ and Ċ in the text", "bytes are turned")
def byte_marks(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The slow tokenizer was taken."""
    _decoded(patch, lambda right, self, ids: right(self, ids).replace(" ", "Ġ").replace("\n", "Ċ"))


@fault("DTK-03", "Special tokens left out", "postprocess", "no boxes, no tables", "special tokens are kept")
def no_markup(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """skip_special_tokens=True."""
    _decoded(patch, lambda right, self, ids: re.sub(r"<\|/?(ref|det|grounding)\|>", "", right(self, ids)))


@fault(
    "DTK-05",
    "Spaces tidied",
    "postprocess",
    "a blank less before a stop",
    "spaces are not tidied",
    "blanks before stops",
)
def tidied(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """clean_up_tokenization_spaces is on."""
    _decoded(patch, lambda right, self, ids: re.sub(r" ([.,!?])", r"\1", right(self, ids)))


@fault("TXT-W1", "Line ends tidied", "postprocess", "other line ends", "spaces are not tidied|line")
def line_ends(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Empty lines are taken together."""
    _decoded(patch, lambda right, self, ids: re.sub(r"\n\n+", "\n", right(self, ids)))


@fault("RND-01", "Coordinates scaled in the text", "postprocess", "boxes elsewhere", "not scaled in the text")
def scaled_text(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server returns pixels."""
    scale: Any = lambda found: re.sub(r"\d+", lambda n: str(int(n[0]) * 2), found[0])  # noqa: E731
    _decoded(patch, lambda right, self, ids: re.sub(r"<\|det\|>.*?<\|/det\|>", scale, right(self, ids), flags=re.S))


@fault("PAR-W1", "EOS left in the text", "read", "a mark at the end", "EOS is taken off")
def eos_left(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The end is not taken off."""
    patch.setattr(session, "clean_output", lambda text: text)


@fault("PAR-02", "Greedy groups", "postprocess", "spans run together", "taken out of the text|non-greedy")
def greedy_groups(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """(.*) in place of (.*?)."""

    def spans(text: str) -> Any:
        found = re.search(r"<\|ref\|>(.*)<\|/ref\|><\|det\|>(.*)<\|/det\|>", text, re.S)
        return [(found.start(), found.end(1), found.start(2), found.end())] if found else []

    patch.setattr(mmd, "find_spans", spans)


@fault(
    "PAR-03",
    "The first box of a span",
    "postprocess",
    "figures missing",
    "every box",
    "a span of two boxes",
)
def first_box(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A regular expression that fits one box."""
    right = markup.parse

    def parse(text: str) -> markup.Markup:
        made = right(text)
        return replace(made, spans=tuple(replace(span, boxes=span.boxes[:1]) for span in made.spans))

    patch.setattr(artifacts, "parse", parse)


@fault(
    "PAR-05",
    "Figures numbered by span",
    "postprocess",
    "another figure behind a link",
    "numbered by box",
    "a figure of two boxes",
)
def numbered_by_span(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Files are numbered as the links are."""
    right = drawing.place

    def place(spans: Any, width: int, height: int) -> Any:
        figures = [span for span in spans if span.label == "image"]
        numbers = {id(span): number for number, span in enumerate(figures)}

        return tuple(
            r if r.figure is None else replace(r, figure=numbers[id(r.span)]) for r in right(spans, width, height)
        )

    patch.setattr(artifacts, "place", place)


@fault("PAR-07", "LaTeX looked for with two backslashes", "postprocess", "\\coloneqq is left", "one backslash", LATEX)
def two_backslashes(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The replacement never fires."""
    patch.setattr(mmd, "_with_plain_symbols", lambda text: text)


@fault(
    "PAR-08",
    "LaTeX rewritten without a span",
    "postprocess",
    ":= where the vendor keeps \\coloneqq",
    "only beside a span",
    LATEX,
)
def always_rewritten(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The replacement stands outside the loop."""
    right, plain = mmd.to_mmd, mmd._with_plain_symbols
    patch.setattr(artifacts, "to_mmd", lambda text: plain(right(text)))


@fault(
    "PAR-09",
    "Text without a label left out",
    "postprocess",
    "paragraphs lost",
    "paragraphs without a label",
    "text in front of the first span",
)
def unlabelled_lost(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The parser keys on labels only."""
    right = mmd.to_mmd
    patch.setattr(artifacts, "to_mmd", lambda text: right(text[max(text.find("<|ref|>"), 0) :]))


@fault("PAR-W2", "Links without their line end", "postprocess", "a figure's link runs into the text", "links", FIGURES)
def links_without_line_end(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The line end behind a link was forgotten."""
    right = mmd.to_mmd
    patch.setattr(artifacts, "to_mmd", lambda text: right(text).replace(".jpg)\n", ".jpg)"))


@fault("PAR-W3", "The text stripped again", "postprocess", "blank lines missing", "what is kept|taken out")
def stripped_again(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Empty lines that the spans leave are taken away."""
    right = mmd.to_mmd
    patch.setattr(artifacts, "to_mmd", lambda text: re.sub(r"\n{2,}", "\n", right(text)).strip())


def _boxes(patch: pytest.MonkeyPatch, to_pixels: Any) -> None:
    patch.setattr(drawing, "to_pixels", to_pixels)


@fault("RND-02", "Coordinates over 1,000", "postprocess", "figures a pixel short", "of which 999 is the last", FIGURES)
def over_1000(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A port's documentation says 0 to 1000."""
    _boxes(
        patch, lambda box, w, h: markup.PixelBox(*(int(v / 1000 * s) for v, s in zip(box, (w, h, w, h), strict=True)))
    )


@fault("RND-W1", "Coordinates rounded", "postprocess", "figures a pixel larger", "truncated", FIGURES)
def rounded(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """round in place of int."""
    _boxes(
        patch, lambda box, w, h: markup.PixelBox(*(round(v / 999 * s) for v, s in zip(box, (w, h, w, h), strict=True)))
    )


@fault("RND-W2", "Width and height exchanged", "postprocess", "figures cut elsewhere", "in pixels", FIGURES)
def exchanged_sides(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height comes first, as in arrays."""
    _boxes(
        patch, lambda box, w, h: markup.PixelBox(*(int(v / 999 * s) for v, s in zip(box, (h, w, h, w), strict=True)))
    )


@fault(
    "RND-04",
    "The page not turned for its overlay",
    "postprocess",
    "boxes beside the text",
    "upright page",
    "a photograph on its side",
)
def not_upright(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The file is opened again, and converted only."""
    patch.setattr(artifacts, "load_image", lambda source: Image.open(source).convert("RGB"))


@fault(
    "RND-06",
    "A figure's number used only where it is cut",
    "postprocess",
    "links to later figures",
    "counting those",
    "a box without area",
)
def counted_on_success(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The counter is advanced inside the try."""
    right = drawing.place

    def place(spans: Any, width: int, height: int) -> Any:

        found, number = [], 0
        for region in right(spans, width, height):
            good = region.figure is not None and region.problem is None
            found.append(replace(region, figure=number) if good else replace(region, figure=None))
            number += good
        return tuple(found)

    patch.setattr(artifacts, "place", place)


@fault(
    "RND-05",
    "Figures cut from the page with its boxes",
    "postprocess",
    "outlines in figures",
    "before boxes are drawn",
    FIGURES,
)
def cut_after_drawing(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Drawing and cutting share one image."""
    right = drawing.crop_figure

    def cut(page: Image.Image, pixels: Any) -> Image.Image:
        figure = right(page, pixels)
        figure.paste((200, 0, 0), (0, 0, figure.width, 3))
        return figure

    patch.setattr(artifacts, "crop_figure", cut)


@fault("PAR-12", "No figures written", "postprocess", "links to nothing", "which files are written", FIGURES)
def no_figures(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """An early return stands in front of the saving."""
    right = artifacts._pictures
    only: Any = lambda made: {name: content for name, content in made.items() if "images/" not in name}  # noqa: E731
    patch.setattr(artifacts, "_pictures", lambda *args: only(right(*args)))
