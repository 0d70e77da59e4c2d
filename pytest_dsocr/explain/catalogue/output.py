"""Mistakes after the text: ``result.mmd``, figures and boxes, and the answers to several pages."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract import artifacts, drawing, markup
from pytest_dsocr.contract.markup import (
    IMAGE_REF,
    REF,
    UNITS,
    Match,
    OutputForm,
    PixelBox,
    clean_output,
    find_spans,
    is_link,
    parse,
    plain_symbols,
    spans_with_links,
    to_mmd,
)
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.explain.catalogue.kv_cache import ring_kept
from pytest_dsocr.explain.mistake import Changes, Mistake, Target
from pytest_dsocr.explain.rows import Group, sets
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.subjects.engine import EngineSubject


def written_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes between text and the result file."""
    group, file = Group("written"), family.form.result_file
    every = {key: (words.replace("result.mmd", file), write) for key, (words, write) in WRITTEN.items()}
    group.rows("", every, sets(artifacts, "to_mmd"))
    group.rows("", FOUND if family.form.label_in_det else {}, _finds)
    return group


def file_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes of figures, boxes, and values kept between pages; no search tries them."""
    group = Group("files", {Symptom.UNRELATED: ("logits-kept",)})
    group.rows("", FILES, lambda on, plant: plant(on))
    if family.pages_prompt:
        group.add("preamble-kept", "the text in front of the first <PAGE> kept as a page", _preamble_kept)
    if family.cache.ring:
        group.add("ring-kept", "the prompt's end kept from the first page, for the ring of all behind it", ring_kept)
    group.add("logits-kept", "the logits of the page before, from a cache that is not reset", _logits_kept)
    group.add("features-kept", "vision's features of a page before that has as many tokens", _features_kept)
    group.add("batch-exchanged", "a batch's texts in the order in which they end", _batch_exchanged)
    group.add("kept-by-name", "readings kept by a file's name", partial(_kept, key=lambda page, how: (page, str(how))))
    words = "readings kept by the page alone, without the prompt"
    key: Callable[[Path, Any], Any] = lambda page, how: (page.read_bytes(), how["preset"], how["max_new_tokens"])  # noqa: E731
    group.add("kept-without-prompt", words, partial(_kept, key=key))
    return group


Write = Callable[[str, OutputForm], str]


def _links(
    text: str, form: OutputForm, link: str = "![](images/{}.jpg)\n", spans: str | None = "", first: int = 0
) -> str:
    """Make ``result.mmd`` with links counted from ``first``; ``spans``, unless None, replaces other spans."""
    output = clean_output(text)
    found = spans_with_links(output, form)
    for index, span in enumerate((span for span, is_figure in found if is_figure), first):
        output = output.replace(span, link.format(index))
    for span, is_figure in found:
        if not is_figure and spans is not None:
            output = plain_symbols(output.replace(span, spans))
    return output


def _behind(change: Callable[[str], str]) -> Write:
    return lambda text, form: change(to_mmd(text, form))


def _unsymbolic(text: str, form: OutputForm) -> str:
    hidden = to_mmd(text.replace("\\coloneqq", "\0a").replace("\\eqqcolon", "\0b"), form)
    return hidden.replace("\0a", "\\coloneqq").replace("\0b", "\\eqqcolon")


def _without_lines(text: str, form: OutputForm) -> str:
    output = clean_output(text)
    for one in sorted(find_spans(output, form), reverse=True):
        link = "![](images/0.jpg)\n" if is_link(one, output, form) else ""
        output = output[: one.start] + link + output[one.end :].removeprefix("\n")
    return output


def _greedy(text: str, _: OutputForm) -> str:
    output = clean_output(text)
    found = re.search(r"<\|ref\|>.*<\|/ref\|><\|det\|>.*<\|/det\|>", output, re.S)
    if not found:
        return output
    return output.replace(found[0], "![](images/0.jpg)\n" if IMAGE_REF in found[0] else "")


WRITTEN: dict[str, tuple[str, Write]] = {
    "symbols-kept": ("\\coloneqq and \\eqqcolon left alone", _unsymbolic),
    "symbols-always": ("\\coloneqq and \\eqqcolon rewritten in every output", _behind(plain_symbols)),
    "spans-kept": ("spans kept in result.mmd", partial(_links, spans=None)),
    "images-kept": ("image spans kept in result.mmd", partial(_links, link="")),
    "no-newline": ("no newline behind links to figures", partial(_links, link="![](images/{}.jpg)")),
    "from-one": ("figures counted from 1", partial(_links, first=1)),
    "padded": ("figures counted with leading zeros", partial(_links, link="![](images/{:02d}.jpg)\n")),
    "png": ("figures named as .png", partial(_links, link="![](images/{}.png)\n")),
    "no-folder": ("links to figures without their folder", partial(_links, link="![]({}.jpg)\n")),
    "dot": ("links to figures that begin with ./", partial(_links, link="![](./images/{}.jpg)\n")),
    "titled": ("links to figures with a title", partial(_links, link="![image](images/{}.jpg)\n")),
    "spans-newline": ("newlines in the place of spans", partial(_links, spans="\n")),
    "spans-space": ("spaces in the place of spans", partial(_links, spans=" ")),
    "stripped": ("result.mmd stripped", _behind(str.strip)),
    "lines-dropped": ("empty lines of result.mmd dropped", _behind(lambda text: re.sub(r"\n{2,}", "\n", text).strip())),
    "newline-end": ("a newline at the end of result.mmd", _behind(lambda text: text + "\n")),
    "raw": ("the text itself in result.mmd", lambda text, form: clean_output(text)),
    "no-blank": ("newlines behind spans dropped with them", _without_lines),
    "one-blank": ("runs of empty lines in result.mmd made one", _behind(lambda text: re.sub(r"\n{3,}", "\n\n", text))),
    "all-first": ("every figure's link that of the first", partial(_links, link="![](images/0.jpg)\n")),
    "coloneqq": ("\\eqqcolon left alone", lambda text, form: _unsymbolic(text, form).replace("\\coloneqq", ":=")),
    "eqqcolon": ("\\coloneqq left alone", lambda text, form: _unsymbolic(text, form).replace("\\eqqcolon", "=:")),
    "greedy": ("one span from the first mark to the last, taken out greedily", _greedy),
    "unlabelled-dropped": (
        "the text in front of the first span left out",
        lambda text, form: to_mmd(text[min((one.start for one in find_spans(text, form)), default=0) :], form),
    ),
}
Find = Callable[[str, OutputForm], Iterable[Match]]
"""Find the spans of a text."""


def _in_det(text: str, form: OutputForm, span: str) -> Iterator[Match]:
    yield from (one for one in find_spans(text, form) if text.startswith(REF, one.start))
    for found in re.finditer(rf"<\|det\|>\s*{span}\s*<\|/det\|>", text, re.S):
        yield Match(*found.span(), found[1], found[2])


FOUND: dict[str, tuple[str, Find]] = {
    "text-order": ("figures numbered in the order of the text", lambda text, form: sorted(find_spans(text, form))),
    "any-label": ("labels in det of all that is no blank", partial(_in_det, span=r"(\S+?)\s*(\[[^\]]*\])")),
    "nested": ("nested boxes in det", partial(_in_det, span=r"([A-Za-z_][\w-]*)\s*(\[.*?\])")),
}
"""Mistakes in finding spans that have their label in ``det``."""


def _by(find: Find, make: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``make`` with the spans that ``find`` finds."""

    def made(*given: Any) -> Any:
        with Changes() as changes:
            changes.set(markup, "find_spans", find)
            return make(*given)

    return made


def _finds(on: Target, find: Find) -> None:
    for name in ("parse", "rewritten", "to_mmd"):
        on.changes.set(artifacts, name, _by(find, getattr(markup, name)))


def writer_of(one: Mistake) -> Write:
    """Return the function that writes the result file with a mistake of this group."""
    return _by(one.how, to_mmd) if one.name in FOUND else one.how


def _to_pixels(on: Target, units: int = UNITS, whole: Callable[[float], int] = int, exchanged: bool = False) -> None:
    def to_pixels(box: Sequence[float], width: int, height: int) -> PixelBox:
        sides = (height, width) * 2 if exchanged else (width, height) * 2
        return PixelBox(*(whole(value / units * side) for value, side in zip(box, sides, strict=True)))

    on.changes.set(drawing, "to_pixels", to_pixels)


def _first_box(on: Target) -> None:
    def one_box(text: str, form: OutputForm) -> Any:
        made = parse(text, form)
        return replace(made, spans=tuple(replace(span, boxes=span.boxes[:1]) for span in made.spans))

    on.changes.set(artifacts, "parse", one_box)


def _numbered(on: Target, by: str) -> None:
    right = drawing.place

    def place(spans: Any, width: int, height: int) -> Any:
        figures = [id(span) for span in spans if span.label == "image"]
        found, number = [], 0
        for region in right(spans, width, height):
            good = region.figure is not None and (by == "span" or region.problem is None)
            figure = (figures.index(id(region.span)) if by == "span" else number) if good else None
            found.append(replace(region, figure=figure))
            number += good
        return tuple(found)

    on.changes.set(artifacts, "place", place)


def _with_boxes(on: Target) -> None:
    right = drawing.crop_figure

    def crop_figure(page: Image.Image, pixels: Any) -> Image.Image:
        figure = right(page, pixels)
        figure.paste((200, 0, 0), (0, 0, figure.width, 3))
        return figure

    on.changes.set(artifacts, "crop_figure", crop_figure)


def _no_figures(on: Target) -> None:
    on.changes.set(artifacts, "place", lambda *given: tuple(replace(one, figure=None) for one in drawing.place(*given)))


def _not_upright(on: Target) -> None:
    on.changes.set(artifacts, "load_image", lambda source: Image.open(source).convert("RGB"))


FILES: dict[str, tuple[str, Callable[[Target], None]]] = {
    "over-1000": ("coordinates divided by 1000 for the page's pixels, not by 999", partial(_to_pixels, units=1000)),
    "rounded": ("coordinates rounded to the page's pixels, not truncated", partial(_to_pixels, whole=round)),
    "sides-exchanged": ("the page's width and height exchanged for its boxes", partial(_to_pixels, exchanged=True)),
    "first-box": ("the first box of each span alone", _first_box),
    "numbered-by-span": ("figures numbered by span, not by box", partial(_numbered, by="span")),
    "numbered-where-cut": ("a figure's number used only where it can be cut", partial(_numbered, by="cut")),
    "not-upright": ("figures and boxes on the page as it is stored, its EXIF orientation left alone", _not_upright),
    "cut-after-drawing": ("figures cut from the page with its boxes drawn on it", _with_boxes),
    "no-figures": ("no figures written", _no_figures),
}


def _preamble_kept(on: Target) -> None:
    def split(text: str) -> list[str]:
        return [page.strip() for page in clean_output(text).split(artifacts.PAGE) if page.strip()]

    on.changes.set(artifacts, "split_pages", split)


def _batch_exchanged(on: Target) -> None:
    right = EngineSubject.read_many
    on.changes.set(EngineSubject, "read_many", lambda self, pages, **how: sorted(right(self, pages, **how), key=len))


def _kept(on: Target, key: Callable[[Path, dict[str, Any]], Any]) -> None:
    right, kept = EngineSubject.read, dict[Any, str]()

    def read(self: EngineSubject, page: Path, **how: Any) -> str:
        found = key(page, how)
        if found not in kept:
            kept[found] = right(self, page, **how)
        return kept[found]

    on.changes.set(EngineSubject, "read", read)


def _logits_kept(on: Target) -> None:
    right, kept = Pipeline.prefill_with, list[Any]()

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        state = right(self, inputs, features, all_logits=all_logits)
        kept.append(state.logits.clone())
        state.logits = kept[0]
        return state

    on.changes.set(Pipeline, "prefill_with", prefill_with)


def _features_kept(on: Target) -> None:
    right, kept = Pipeline.prefill_with, dict[int, Any]()

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        if features is not None:
            features = kept.setdefault(inputs.prompt_tokens, features)
        return right(self, inputs, features, all_logits=all_logits)

    on.changes.set(Pipeline, "prefill_with", prefill_with)
