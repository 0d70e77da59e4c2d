"""Mistakes of what is made of tokens: text, ``result.mmd``, figures and boxes, and the answers to several pages."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_dsocr.compare.verdict import Sign
from pytest_dsocr.contract import artifacts, drawing
from pytest_dsocr.contract.markup import (
    IMAGE_REF,
    UNITS,
    OutputForm,
    PixelBox,
    clean_output,
    find_spans,
    parse,
    plain_symbols,
    to_mmd,
)
from pytest_dsocr.contract.prompt import EOS, TextTokenizer
from pytest_dsocr.engine import engine, pipeline
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.explain.mistake import Group, Target
from pytest_dsocr.subjects.session import SessionSubject

Tell = Callable[[TextTokenizer, Sequence[int]], str]
"""Makes a text of tokens."""

OF_TEXTS = {
    Sign.EMPTINESS: ("nothing",),
    Sign.GOES_ON: ("eos-kept",),
    Sign.LOST_START: ("first-lost",),
    Sign.BYTE_MARKS: ("marks",),
    Sign.BROKEN_CHARACTERS: ("one-by-one",),
    Sign.MARKUP: ("no-special",),
    Sign.SPACES: ("spaces-tidied", "one-newline", "not-stripped"),
    Sign.NUMBERS: ("doubled", "thousand"),
}


def text_mistakes() -> Group:
    """Make those between tokens and text."""
    group = Group("text", OF_TEXTS)
    group.rows("", TEXTS, _tells)
    group.add("first-lost", "the first token fed and not kept", _first_lost)
    group.add("nothing", "a text that is printed and not given back", _nothing)
    return group


def written_mistakes() -> Group:
    """Make those between text and ``result.mmd``."""
    group = Group("written")
    group.rows("", WRITTEN, lambda on, write: on.changes.set(artifacts, "to_mmd", lambda text, *_: write(text)))
    return group


def file_mistakes() -> Group:
    """Make those of figures and boxes, which are not tried, and those of what is kept between pages."""
    group = Group("files", {Sign.UNRELATED: ("logits-kept",)})
    group.rows("", FILES, lambda on, plant: plant(on))
    group.add("logits-kept", "the logits of the page before, from a cache that is not reset", _logits_kept)
    group.add("features-kept", "vision's features of a page before that has as many tokens", _features_kept)
    group.add("batch-exchanged", "a batch's texts in the order in which they end", _batch_exchanged)
    group.add("kept-by-name", "readings kept by a file's name", partial(_kept, key=lambda page, how: (page, str(how))))
    words = "readings kept by the page alone, without the prompt"
    key: Callable[[Path, Any], Any] = lambda page, how: (page.read_bytes(), how["preset"], how["max_new_tokens"])  # noqa: E731
    group.add("kept-without-prompt", words, partial(_kept, key=key))
    return group


def _decoded(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    return clean_output(tokenizer.decode(ids))


def _then(change: Callable[[str], str]) -> Tell:
    return lambda tokenizer, ids: change(_decoded(tokenizer, ids))


def _sub(pattern: str, by: str | Callable[[re.Match[str]], str]) -> Tell:
    return _then(lambda text: re.sub(pattern, by, text, flags=re.S))


def _one_by_one(tokenizer: TextTokenizer, ids: Sequence[int], by: str = "") -> str:
    return clean_output(by.join(tokenizer.decode([one]) for one in ids))


def _lines(change: Callable[[str], str]) -> Tell:
    return _then(lambda text: "\n".join(map(change, text.splitlines())))


def _tidied(text: str) -> str:
    """Tidy spaces as transformers does with ``clean_up_tokenization_spaces``."""
    for mark in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
        text = text.replace(mark, mark.strip())
    return text


def _coordinates(change: Callable[[int], int]) -> Tell:
    def changed(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"\d+", lambda number: str(change(int(number[0]))), found[2]) + found[3]

    return _sub(r"(<\|det\|>)(.*?)(<\|/det\|>)", changed)


TEXTS: dict[str, tuple[str, Tell]] = {
    "not-stripped": ("the text not stripped", lambda t, ids: t.decode(ids).removesuffix(EOS)),
    "eos-kept": ("the end-of-sentence token kept in the text", lambda t, ids: t.decode(ids).strip()),
    "eos-kept-raw": ("the end-of-sentence token kept and the text not stripped", lambda t, ids: t.decode(ids)),
    "no-special": (
        "special tokens dropped from the text",
        _then(lambda text: re.sub(r"<[|｜][^<>|｜]*[|｜]>", "", text).strip()),
    ),
    "spaces-tidied": ("spaces tidied in front of full stops and the like", _then(_tidied)),
    "one-by-one": ("tokens decoded one by one, so that characters of several bytes break", _one_by_one),
    "broken-dropped": (
        "characters that cannot be decoded dropped",
        lambda t, ids: _one_by_one(t, ids).replace("\N{REPLACEMENT CHARACTER}", ""),
    ),
    "first-dropped": ("the first token dropped", lambda t, ids: _decoded(t, ids[1:])),
    "last-dropped": ("the last token in front of EOS dropped", lambda t, ids: _decoded(t, ids[:-2] if ids else ids)),
    **{
        form.lower(): (f"the text brought to Unicode's form {form}", _then(partial(unicodedata.normalize, form)))
        for form in ("NFKC", "NFD", "NFC")
    },
    "ascii": ("all but ASCII dropped", _then(lambda text: text.encode("ascii", "ignore").decode())),
    "latin-1": ("UTF-8 read as Latin-1", _then(lambda text: text.encode().decode("latin-1"))),
    "escaped": ("the text escaped for HTML", _then(escape)),
    "one-space": ("runs of white space made one space", _then(lambda text: " ".join(text.split()))),
    "one-blank": ("runs of spaces made one", _sub(r" {2,}", " ")),
    "one-newline": ("empty lines dropped", _sub(r"\n{2,}", "\n")),
    "two-newlines": ("more than one empty line made one", _sub(r"\n{3,}", "\n\n")),
    "no-newlines": ("newlines made spaces", _sub("\n", " ")),
    "carriage": ("a carriage return in front of each newline", _sub("\n", "\r\n")),
    "lines-stripped": ("each line stripped", _lines(str.strip)),
    "lines-right-stripped": ("each line stripped at its end", _lines(str.rstrip)),
    "no-ref": ("<|ref|> and <|/ref|> dropped", _sub(r"<\|/?ref\|>", "")),
    "no-spans": ("spans dropped, their text kept", _sub(r"<\|ref\|>.*?<\|/ref\|><\|det\|>.*?<\|/det\|>\n?", "")),
    "mmd": ("result.mmd given in the place of the text", _then(to_mmd)),
    "coordinates-no-space": (
        "no spaces in coordinates",
        _sub(r"(<\|det\|>)(.*?)(<\|/det\|>)", lambda m: m[1] + m[2].replace(" ", "") + m[3]),
    ),
    "thousand": ("coordinates divided by 1000, not by 999", _coordinates(lambda value: round(value * 999 / 1000))),
    "one-less": ("coordinates one less", _coordinates(lambda value: value - 1)),
    "doubled": ("coordinates scaled in the text", _coordinates(lambda value: value * 2)),
    "lower": ("the text in small letters", _then(str.lower)),
    "marks": (
        "byte marks of the vocabulary left in the text",
        _then(lambda text: text.replace(" ", "Ġ").replace("\n", "Ċ")),
    ),
    "blank-behind": ("a blank between tokens", partial(_one_by_one, by=" ")),
    "double-eos": ("EOS dropped wherever it stands", _then(lambda text: text.replace(EOS, ""))),
    "left-stripped": (
        "the text stripped at its beginning alone",
        lambda t, ids: t.decode(ids).removesuffix(EOS).lstrip(),
    ),
    "right-stripped": ("the text stripped at its end alone", lambda t, ids: t.decode(ids).removesuffix(EOS).rstrip()),
}
OF_THE_END = ("not-stripped", "eos-kept", "eos-kept-raw", "left-stripped", "right-stripped")
"""What the reading does with the text of its tokens, which are decoded as is right."""


def _tells(on: Target, tell: Tell) -> None:
    class Right:
        special = on.session.tokenizer.special

        def __init__(self, tokenizer: Tokenizer) -> None:
            self.encode, self.decode = tokenizer.encode, partial(decode, tokenizer)

    decode = Tokenizer.decode
    if tell in [TEXTS[name][1] for name in OF_THE_END]:
        on.changes.set(engine, "clean_output", lambda text: tell(_Said(text), ()))
    else:
        on.changes.set(Tokenizer, "decode", lambda self, ids: tell(Right(self), ids))


class _Said:
    """A text that stands for its tokens."""

    special: Any = None

    def __init__(self, text: str) -> None:
        self.text = text

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text."""
        return self.text

    def encode(self, text: str) -> list[int]:
        """Encode nothing."""
        raise NotImplementedError


def _first_lost(on: Target) -> None:
    right = pipeline.generate
    on.changes.set(engine, "generate", lambda *given: iter(list(right(*given))[1:]))


def _nothing(on: Target) -> None:
    on.changes.set(SessionSubject, "read", lambda self, page, **how: "")


Write = Callable[[str], str]


def _links(text: str, link: str = "![](images/{}.jpg)\n", spans: str | None = "", first: int = 0) -> str:
    """Make ``result.mmd`` with other links, counted from ``first``; other spans replaced by ``spans``, or kept."""
    output = clean_output(text)
    found = [output[one.start : one.end] for one in find_spans(output)]
    for index, span in enumerate((span for span in found if IMAGE_REF in span), first):
        output = output.replace(span, link.format(index))
    for span in found:
        if IMAGE_REF not in span and spans is not None:
            output = plain_symbols(output.replace(span, spans))
    return output


def _unsymbolic(text: str) -> str:
    hidden = to_mmd(text.replace("\\coloneqq", "\0a").replace("\\eqqcolon", "\0b"))
    return hidden.replace("\0a", "\\coloneqq").replace("\0b", "\\eqqcolon")


def _without_lines(text: str) -> str:
    output = clean_output(text)
    for start, end, *_ in reversed(list(find_spans(output))):
        link = "![](images/0.jpg)\n" if IMAGE_REF in output[start:end] else ""
        output = output[:start] + link + output[end:].removeprefix("\n")
    return output


def _greedy(text: str) -> str:
    output = clean_output(text)
    found = re.search(r"<\|ref\|>.*<\|/ref\|><\|det\|>.*<\|/det\|>", output, re.S)
    if not found:
        return output
    return output.replace(found[0], "![](images/0.jpg)\n" if IMAGE_REF in found[0] else "")


WRITTEN: dict[str, tuple[str, Write]] = {
    "symbols-kept": ("\\coloneqq and \\eqqcolon left alone", _unsymbolic),
    "symbols-always": ("\\coloneqq and \\eqqcolon rewritten in every output", lambda text: plain_symbols(to_mmd(text))),
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
    "stripped": ("result.mmd stripped", lambda text: to_mmd(text).strip()),
    "lines-dropped": ("empty lines of result.mmd dropped", lambda text: re.sub(r"\n{2,}", "\n", to_mmd(text)).strip()),
    "newline-end": ("a newline at the end of result.mmd", lambda text: to_mmd(text) + "\n"),
    "raw": ("the text itself in result.mmd", clean_output),
    "no-blank": ("newlines behind spans dropped with them", _without_lines),
    "one-blank": ("runs of empty lines in result.mmd made one", lambda text: re.sub(r"\n{3,}", "\n\n", to_mmd(text))),
    "all-first": ("every figure's link that of the first", partial(_links, link="![](images/0.jpg)\n")),
    "coloneqq": ("\\eqqcolon left alone", lambda text: _unsymbolic(text).replace("\\coloneqq", ":=")),
    "eqqcolon": ("\\coloneqq left alone", lambda text: _unsymbolic(text).replace("\\eqqcolon", "=:")),
    "greedy": ("one span from the first mark to the last, taken out greedily", _greedy),
    "unlabelled-dropped": (
        "the text in front of the first span left out",
        lambda text: to_mmd(text[max(text.find("<|ref|>"), 0) :]),
    ),
}


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


def _batch_exchanged(on: Target) -> None:
    right = SessionSubject.read_many
    on.changes.set(SessionSubject, "read_many", lambda self, pages, **how: sorted(right(self, pages, **how), key=len))


def _kept(on: Target, key: Callable[[Path, dict[str, Any]], Any]) -> None:
    right, kept = SessionSubject.read, dict[Any, str]()

    def read(self: SessionSubject, page: Path, **how: Any) -> str:
        found = key(page, how)
        if found not in kept:
            kept[found] = right(self, page, **how)
        return kept[found]

    on.changes.set(SessionSubject, "read", read)


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
