"""Mistakes between tokens and text."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract.markup import OutputForm, clean_output, to_mmd
from pytest_dsocr.contract.prompt import EOS, TextTokenizer
from pytest_dsocr.engine import engine, pipeline
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group
from pytest_dsocr.subjects.engine import EngineSubject

Tell = Callable[[TextTokenizer, Sequence[int]], str]
"""Make a text of tokens."""

OF_TEXTS = {
    Symptom.EMPTINESS: ("nothing",),
    Symptom.GOES_ON: ("eos-kept",),
    Symptom.LOST_START: ("first-lost",),
    Symptom.BYTE_MARKS: ("marks",),
    Symptom.BROKEN_CHARACTERS: ("one-by-one",),
    Symptom.MARKUP: ("no-special",),
    Symptom.SPACES: ("spaces-tidied", "one-newline", "not-stripped"),
    Symptom.NUMBERS: ("doubled", "thousand"),
}


def text_mistakes() -> Group:
    """Return the mistakes between tokens and text."""
    group = Group("text", OF_TEXTS)
    group.rows("", TEXTS, _tells)
    group.add("first-lost", "the first token fed and not kept", _first_lost)
    group.add("nothing", "a text that is printed and not given back", _nothing)
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


MARKED = OutputForm(label_in_det=False, flat_box=False, strips_label=False, result_file="result.mmd")
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
    "mmd": ("result.mmd given in the place of the text", _then(lambda text: to_mmd(text, MARKED))),
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
"""Mistakes with the text of rightly decoded tokens."""


def _tells(on: Target, tell: Tell) -> None:
    class Right:
        special = on.engine.tokenizer.special

        def __init__(self, tokenizer: Tokenizer) -> None:
            self.encode, self.decode = tokenizer.encode, partial(decode, tokenizer)

    decode = Tokenizer.decode
    if tell in [TEXTS[name][1] for name in OF_THE_END]:
        on.changes.set(engine, "clean_output", lambda text: tell(_Said(text), ()))
    else:
        on.changes.set(Tokenizer, "decode", lambda self, ids: tell(Right(self), ids))


class _Said:
    """Tokenizer that returns one text for all tokens."""

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
    on.changes.set(EngineSubject, "read", lambda self, page, **how: "")
