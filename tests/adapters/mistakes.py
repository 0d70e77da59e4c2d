"""Thirty mistakes of servers: of each the parts of :class:`~tests.adapters.serving.Right` that it gets wrong."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.explain.catalogue.pixels import GRIDS
from pytest_dsocr.families import DEFAULT
from tests.adapters.server import TOKEN
from tests.adapters.serving import FLIGHT, Right, session


@dataclass(frozen=True)
class Cut(Preset):
    """A preset with a rule of grids of its own."""

    rule: Callable[..., Grid] = GRIDS["six"][1]

    def grid(self, width_px: int, height_px: int) -> Grid:
        return self.rule(width_px, height_px)


HELD_S = 0.05
BEFORE: dict[str, Any] = {}
"""What is kept of requests before."""


def text_tokens(own: Right) -> int:
    return 1 + len(session().tokenizer.encode(own.text))


def cut_by(rule: str) -> Any:
    return lambda own: Cut(**Right.preset(own).sizes, rule=GRIDS[rule][1])


def stopped_behind(own: Right, text: str) -> tuple[str, bool]:
    cut, is_stopped = Right.stopped(own, text)
    return (text[: len(cut) + len(own.body["stop"][0])], True) if is_stopped else (text, False)


def mixed(own: Right) -> Any:
    others = [one for one in FLIGHT if one.urls and one.urls != own.urls]
    return Right.reading(Right(others[0].body | {"max_tokens": own.most()}) if others else own)


def with_ngrams_before(own: Right, inputs: Any) -> Any:
    made = Right.begun(own, inputs)
    for token in BEFORE.setdefault("tokens", [])[-500:]:
        made.ban.push(token)
    return made


def keeping_ngrams(own: Right, tokens: Any) -> str:
    BEFORE["tokens"] = [*BEFORE.get("tokens", ()), *tokens]
    return Right.said(own, tokens)


def count_before(own: Right, prompt: int, completion: int) -> Any:
    before, BEFORE["count"] = BEFORE.get("count", prompt), prompt
    return Right.usage(own, before, completion)


def as_it_lies(own: Right, data: bytes) -> Image.Image:
    page = Image.open(io.BytesIO(data)).convert("RGB")
    page.info.pop("exif", None)  # the session would turn it
    return page


def small_jpeg(own: Right, data: bytes) -> Image.Image:
    page = Right.opened(own, data)
    is_jpeg = Image.open(io.BytesIO(data)).format == "JPEG"
    return page.reduce(2).resize(page.size) if is_jpeg else page


def by_host(own: Right, url: str) -> bytes:
    host = urlsplit(url).netloc
    return Right.fetched(own, url) if not host else BEFORE.setdefault(host, Right.fetched(own, url))


def in_threes(own: Right, text: str) -> list[str]:
    sent = text.encode()
    return [sent[at : at + 3].decode(errors="replace") for at in range(0, len(sent), 3)]


PARTS: Mapping[str, Mapping[str, Any]] = {
    "counts-no-image": {"usage": lambda own, _, said: Right.usage(own, text_tokens(own), said)},
    "counts-pages-alike": {"usage": lambda own, _, said: Right.usage(own, 273 + text_tokens(own), said)},
    "counts-the-page-before": {"usage": count_before},
    "counts-one-less": {"usage": lambda own, prompt, said: Right.usage(own, prompt, said - 1)},
    "six-crops": {"preset": cut_by("six")},
    "cuts-640": {"preset": cut_by("limit-639")},
    "base-for-gundam": {"preset": lambda own: DEFAULT.presets["base"]},
    "ignores-exif": {"opened": as_it_lies},
    "small-jpeg": {"opened": small_jpeg},
    "page-of-the-host": {"fetched": by_host},
    "page-of-the-size": {"key": lambda own, page: page.size},
    "samples-always": {"heat": 0.7},
    "no-ngram-rule": {"ngram": 0},
    "ngram-rule-of-30": {"ngram": 30},
    "one-token-more": {"most": lambda own: Right.most(own) + 1},
    "ends-at-100": {"most": lambda own: min(100, Right.most(own)), "reason": lambda own, end: "stop"},
    "says-stop": {"reason": lambda own, end: "stop"},
    "says-stop-behind-pieces": {"reason_behind_pieces": lambda own, reason: "stop"},
    "ignores-stop": {"stopped": lambda own, text: (text, False)},
    "keeps-the-stop": {"stopped": stopped_behind},
    "mixes-pages": {"reading": mixed, "held_s": HELD_S},
    "pads-beside-longer": {
        "said": lambda own, ids: Right.said(own, ids[any(one.most() > own.most() for one in FLIGHT) :]),
        "held_s": HELD_S,
    },
    "keeps-ngrams": {"begun": with_ngrams_before, "said": keeping_ngrams, "key": lambda own, page: object()},
    "loses-the-last-piece": {"pieces": lambda own, text: Right.pieces(own, text)[:-1]},
    "sends-a-piece-twice": {"pieces": lambda own, text: [*(all_of := Right.pieces(own, text))[:1], *all_of]},
    "cuts-characters": {"pieces": in_threes},
    "pieces-without-tokens": {"pieces": lambda own, text: [TOKEN.sub("", one) for one in Right.pieces(own, text)]},
    "logprobs-of-the-next": {"logprobs": lambda own, ids, of: Right.logprobs(own, ids, [*of[1:], *of[:1]])},
    "logprobs-of-heat": {"logprobs": lambda own, ids, of: Right.logprobs(own, ids, [one / 0.7 for one in of])},
    "unsorted-logprobs": {"best": lambda own, logits: Right.best(own, logits)[::-1]},
}
MISTAKES = {"right": Right, **{name: type(name, (Right,), dict(parts)) for name, parts in PARTS.items()}}
