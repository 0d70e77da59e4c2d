"""What-ifs of reading to the end: which token is chosen, when it ends, and how tokens become text and files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from typing import Any

import torch

from pytest_dsocr.contract.markup import find_spans
from pytest_dsocr.contract.mmd import IMAGE_REF, clean_output, to_mmd
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.contract.prompt import EOS, TextTokenizer

Tell = Callable[[TextTokenizer, Sequence[int]], str]
"""Makes a text of tokens."""


def _decoded(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    return clean_output(tokenizer.decode(ids))


def _then(change: Callable[[str], str]) -> Tell:
    return lambda tokenizer, ids: change(_decoded(tokenizer, ids))


def _one_by_one(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    return clean_output("".join(tokenizer.decode([one]) for one in ids))


def _tidied(text: str) -> str:
    """Tidy spaces as transformers does with ``clean_up_tokenization_spaces``."""
    for before, after in (
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ):
        text = text.replace(before, after)
    return text


def _without_special(text: str) -> str:
    return re.sub(r"<[|｜][^<>|｜]*[|｜]>", "", text).strip()


TEXTS: dict[str, tuple[str, Tell]] = {
    "not-stripped": ("the text not stripped", lambda t, ids: t.decode(ids).removesuffix(EOS)),
    "eos-kept": ("the end-of-sentence token kept in the text", lambda t, ids: t.decode(ids).strip()),
    "eos-kept-raw": ("the end-of-sentence token kept and the text not stripped", lambda t, ids: t.decode(ids)),
    "no-special": ("special tokens dropped from the text", _then(_without_special)),
    "spaces-tidied": ("spaces tidied in front of full stops and the like", _then(_tidied)),
    "one-by-one": ("tokens decoded one by one, so that characters of several bytes break", _one_by_one),
    "broken-dropped": (
        "characters that cannot be decoded dropped",
        lambda t, ids: _one_by_one(t, ids).replace("\N{REPLACEMENT CHARACTER}", ""),
    ),
    "first-dropped": ("the first token dropped", lambda t, ids: _decoded(t, ids[1:])),
    "last-dropped": ("the last token in front of EOS dropped", lambda t, ids: _decoded(t, ids[:-2] if ids else ids)),
    "two-last-dropped": ("the last two tokens in front of EOS dropped", lambda t, ids: _decoded(t, ids[:-3])),
    "nfkc": ("the text brought to Unicode's form NFKC", _then(partial(unicodedata.normalize, "NFKC"))),
    "nfd": ("the text brought to Unicode's form NFD", _then(partial(unicodedata.normalize, "NFD"))),
    "nfc": ("the text brought to Unicode's form NFC", _then(partial(unicodedata.normalize, "NFC"))),
    "ascii": ("all but ASCII dropped", _then(lambda text: text.encode("ascii", "ignore").decode())),
    "latin-1": ("UTF-8 read as Latin-1", _then(lambda text: text.encode().decode("latin-1"))),
    "escaped": ("the text escaped for HTML", _then(escape)),
    "one-space": ("runs of white space made one space", _then(lambda text: " ".join(text.split()))),
    "one-blank": ("runs of spaces made one", _then(lambda text: re.sub(r" {2,}", " ", text))),
    "one-newline": ("empty lines dropped", _then(lambda text: re.sub(r"\n{2,}", "\n", text))),
    "two-newlines": ("more than one empty line made one", _then(lambda text: re.sub(r"\n{3,}", "\n\n", text))),
    "no-newlines": ("newlines made spaces", _then(lambda text: text.replace("\n", " "))),
    "carriage": ("a carriage return in front of each newline", _then(lambda text: text.replace("\n", "\r\n"))),
    "lines-stripped": ("each line stripped", _then(lambda text: "\n".join(line.strip() for line in text.splitlines()))),
    "lines-right-stripped": (
        "each line stripped at its end",
        _then(lambda text: "\n".join(line.rstrip() for line in text.splitlines())),
    ),
    "no-ref": ("<|ref|> and <|/ref|> dropped", _then(lambda text: re.sub(r"<\|/?ref\|>", "", text))),
    "no-spans": (
        "spans dropped, their text kept",
        _then(lambda text: re.sub(r"<\|ref\|>.*?<\|/ref\|><\|det\|>.*?<\|/det\|>\n?", "", text, flags=re.DOTALL)),
    ),
    "mmd": ("result.mmd given in the place of the text", _then(to_mmd)),
    "coordinates-no-space": (
        "no spaces in coordinates",
        _then(
            lambda text: re.sub(r"(<\|det\|>)(.*?)(<\|/det\|>)", lambda m: m[1] + m[2].replace(" ", "") + m[3], text)
        ),
    ),
    "thousand": (
        "coordinates divided by 1000, not by 999",
        _then(lambda text: _coordinates(text, lambda value: round(value * 999 / 1000))),
    ),
    "one-less": ("coordinates one less", _then(lambda text: _coordinates(text, lambda value: value - 1))),
    "lower": ("the text in small letters", _then(str.lower)),
    "marks": (
        "byte marks of the vocabulary left in the text",
        _then(lambda text: text.replace(" ", "Ġ").replace("\n", "Ċ")),
    ),
    "halved": ("the second half of the tokens lost", lambda t, ids: _decoded(t, ids[: len(ids) // 2])),
    "blank-behind": ("a blank between tokens", lambda t, ids: clean_output(" ".join(t.decode([one]) for one in ids))),
    "double-eos": ("EOS dropped wherever it stands", _then(lambda text: text.replace(EOS, ""))),
    "left-stripped": (
        "the text stripped at its beginning alone",
        lambda t, ids: t.decode(ids).removesuffix(EOS).lstrip(),
    ),
    "right-stripped": ("the text stripped at its end alone", lambda t, ids: t.decode(ids).removesuffix(EOS).rstrip()),
}


def _coordinates(text: str, change: Callable[[int], int]) -> str:
    def changed(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"\d+", lambda number: str(change(int(number[0]))), found[2]) + found[3]

    return re.sub(r"(<\|det\|>)(.*?)(<\|/det\|>)", changed, text)


@dataclass(frozen=True)
class Reading:
    """How tokens are chosen until the end; the defaults are the vendor's."""

    size: int = 20
    prompt_counts: bool = True
    window: int | None = None
    """Of so many tokens the n-gram rule looks back."""
    penalty: float = 1.0
    penalty_of_prompt: bool = True
    most: int | None = None
    least: int = 0
    redecoded: bool = False
    blind: bool = False
    """Whether the prompt is read without the image's features."""
    rank: int = 0
    """Which of the best tokens is taken."""
    stop: Callable[[str], bool] | None = None
    rounded: torch.dtype | None = None
    tell: Tell = _decoded
    forbidden: tuple[str, ...] = ()
    preset: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def choose(self, logits: torch.Tensor, prompt: Sequence[int], said: Sequence[int], eos: int) -> int:
        """Give the next token of logits ``[V]``."""
        logits = logits.clone() if self.rounded is None else logits.to(self.rounded).float()
        ban = NgramBan(self.size, self._history(prompt, said))
        if banned := ban.banned():
            logits[banned] = -torch.inf
        if self.penalty != 1.0 and (seen := {*(prompt if self.penalty_of_prompt else ()), *said}):
            at = sorted(seen)
            logits[at] = torch.where(logits[at] > 0, logits[at] / self.penalty, logits[at] * self.penalty)
        if len(said) < self.least:
            logits[eos] = -torch.inf
        return int(logits.argmax()) if not self.rank else int(logits.topk(self.rank + 1).indices[-1])

    def _history(self, prompt: Sequence[int], said: Sequence[int]) -> Sequence[int]:
        history = [*(prompt if self.prompt_counts else ()), *said]
        return history if self.window is None else history[-self.window :]


READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "no-rule": ("no n-gram rule", {"size": 0}),
    "blind": ("a prompt read a second time without the image's features", {"blind": True}),
    "redecoded": ("the prompt's last token decoded once more for the first token", {"redecoded": True}),
    "generated-alone": ("an n-gram rule that does not count the prompt", {"prompt_counts": False}),
    "window-90": ("an n-gram rule that looks back 90 tokens, as vLLM's does", {"window": 90}),
    "window-30-90": ("an n-gram rule of 30 tokens that looks back 90", {"size": 30, "window": 90}),
    **{
        f"size-{size}": (f"an n-gram rule of {size} tokens in place of 20", {"size": size})
        for size in (35, 19, 21, 10, 30, 3, 4, 5, 2, 8, 15, 25, 40, 1)
    },
    **{
        f"window-{size}": (f"an n-gram rule that looks back {size} tokens", {"window": size})
        for size in (100, 64, 128, 50, 256)
    },
    **{
        f"penalty-{value:g}": (f"a penalty of {value:g} on tokens that were said", {"penalty": value})
        for value in (1.05, 1.1, 1.2, 1.02, 1.3, 1.5)
    },
    **{
        f"penalty-said-{value:g}": (
            f"a penalty of {value:g} on tokens that were said, the prompt's not counted",
            {"penalty": value, "penalty_of_prompt": False},
        )
        for value in (1.05, 1.1, 1.2)
    },
    "second": ("the second best token", {"rank": 1}),
    "bfloat16": ("logits rounded to bfloat16 in front of the choice", {"rounded": torch.bfloat16}),
    "float16": ("logits rounded to float16 in front of the choice", {"rounded": torch.float16}),
    **{
        f"most-{count}": (f"an output that ends after {count} tokens", {"most": count})
        for count in (16, 20, 32, 50, 64, 100, 128, 256, 512, 1024)
    },
    "paragraph": ("an output that ends at the first empty line", {"stop": lambda text: "\n\n" in text}),
    "line": ("an output that ends at the first newline", {"stop": lambda text: "\n" in text}),
    "first-span": ("an output that ends with the first span", {"stop": lambda text: "<|/det|>" in text}),
}

Write = Callable[[str], str]


def _links(text: str, link: Callable[[int], str], spans: str | None = "") -> str:
    """Make ``result.mmd`` with other links, and other spans replaced by ``spans``, or kept."""
    output = clean_output(text)
    found = [output[start:end] for start, _, _, end in find_spans(output)]
    images = [span for span in found if IMAGE_REF in span]
    for index, span in enumerate(images):
        output = output.replace(span, link(index))
    for span in found:
        if IMAGE_REF not in span and spans is not None:
            output = _symbols(output.replace(span, spans))
    return output


def _symbols(text: str) -> str:
    return text.replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")


def _usual_link(index: int) -> str:
    return f"![](images/{index}.jpg)\n"


WRITTEN: dict[str, tuple[str, Write]] = {
    "symbols-kept": ("\\coloneqq and \\eqqcolon left alone", lambda text: _unsymbolic(text)),
    "symbols-always": ("\\coloneqq and \\eqqcolon rewritten in every output", lambda text: _symbols(to_mmd(text))),
    "spans-kept": ("spans kept in result.mmd", lambda text: _links(text, _usual_link, None)),
    "images-kept": ("image spans kept in result.mmd", lambda text: _links(text, lambda index: "")),
    "no-newline": (
        "no newline behind links to figures",
        lambda text: _links(text, lambda index: f"![](images/{index}.jpg)"),
    ),
    "from-one": ("figures counted from 1", lambda text: _links(text, lambda index: _usual_link(index + 1))),
    "padded": (
        "figures counted with leading zeros",
        lambda text: _links(text, lambda index: f"![](images/{index:02d}.jpg)\n"),
    ),
    "png": ("figures named as .png", lambda text: _links(text, lambda index: f"![](images/{index}.png)\n")),
    "no-folder": (
        "links to figures without their folder",
        lambda text: _links(text, lambda index: f"![]({index}.jpg)\n"),
    ),
    "dot": (
        "links to figures that begin with ./",
        lambda text: _links(text, lambda index: f"![](./images/{index}.jpg)\n"),
    ),
    "titled": (
        "links to figures with a title",
        lambda text: _links(text, lambda index: f"![image](images/{index}.jpg)\n"),
    ),
    "spans-newline": ("newlines in the place of spans", lambda text: _links(text, _usual_link, "\n")),
    "spans-space": ("spaces in the place of spans", lambda text: _links(text, _usual_link, " ")),
    "stripped": ("result.mmd stripped", lambda text: to_mmd(text).strip()),
    "newline-end": ("a newline at the end of result.mmd", lambda text: to_mmd(text) + "\n"),
    "raw": ("the text itself in result.mmd", clean_output),
    "no-blank": ("newlines behind spans dropped with them", lambda text: _without_lines(text)),
    "one-blank": ("runs of empty lines in result.mmd made one", lambda text: re.sub(r"\n{3,}", "\n\n", to_mmd(text))),
    "all-first": ("every figure's link that of the first", lambda text: _links(text, lambda index: _usual_link(0))),
    "coloneqq": ("\\eqqcolon left alone", lambda text: _unsymbolic(text).replace("\\coloneqq", ":=")),
    "eqqcolon": ("\\coloneqq left alone", lambda text: _unsymbolic(text).replace("\\eqqcolon", "=:")),
}


def _unsymbolic(text: str) -> str:
    return (
        to_mmd(text.replace("\\coloneqq", "\0a").replace("\\eqqcolon", "\0b"))
        .replace("\0a", "\\coloneqq")
        .replace("\0b", "\\eqqcolon")
    )


def _without_lines(text: str) -> str:
    output = clean_output(text)
    for start, _, _, end in reversed(list(find_spans(output))):
        link = _usual_link(0) if IMAGE_REF in output[start:end] else ""
        output = output[:start] + link + output[end:].removeprefix("\n")
    return output


def reading(how: dict[str, Any]) -> Reading:
    """Give the vendor's way of reading, but for what ``how`` says."""
    return replace(Reading(), **how)
