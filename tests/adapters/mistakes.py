"""Thirty mistakes of servers: of each the parts of :class:`~tests.adapters.serving.Right` that it gets wrong."""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from pytest_dsocr.contract.presets import Tiling
from pytest_dsocr.families import DEFAULT
from tests.adapters.server import TOKEN
from tests.adapters.serving import FLIGHT, Right, session

HELD_S = 0.05
BEFORE: dict[str, Any] = {}
"""What is kept of requests before."""


def swapped(name: str, value: Any) -> Any:
    before, BEFORE[name] = BEFORE.get(name, value), value
    return before


def text_tokens(own: Right) -> int:
    return 1 + len(session().tokenizer.encode(own.text))


def stopped_behind(own: Right, text: str) -> tuple[str, bool]:
    cut, is_stopped = Right.stopped(own, text)
    return (text[: len(cut) + len(own.body["stop"][0])], True) if is_stopped else (text, False)


def mixed(own: Right) -> Any:
    others = [one for one in FLIGHT if one.urls and one.urls != own.urls]
    return Right.reading(Right(others[0].body | {"max_tokens": own.most()}) if others else own)


def as_it_lies(own: Right, data: bytes) -> Image.Image:
    page = Image.open(io.BytesIO(data)).convert("RGB")
    page.info.pop("exif", None)  # the session would turn it
    return page


def small_jpeg(own: Right, data: bytes) -> Image.Image:
    page = Right.opened(own, data)
    return page.reduce(2).resize(page.size) if data.startswith(b"\xff\xd8") else page


def by_host(own: Right, url: str) -> bytes:
    host = urlsplit(url).netloc
    return BEFORE.setdefault(host, Right.fetched(own, url)) if host else Right.fetched(own, url)


PARTS: Mapping[str, Mapping[str, Any]] = {
    "counts-no-image": {"usage": lambda own, _, said: Right.usage(own, text_tokens(own), said)},
    "counts-pages-alike": {"usage": lambda own, _, said: Right.usage(own, 273 + text_tokens(own), said)},
    "counts-the-page-before": {"usage": lambda own, prompt, said: Right.usage(own, swapped("count", prompt), said)},
    "counts-one-less": {"usage": lambda own, prompt, said: Right.usage(own, prompt, said - 1)},
    "six-crops": {"preset": lambda own: replace(Right.preset(own), tiling=Tiling(most=6))},
    "total-is-the-prompt": {"usage": lambda own, *both: {**Right.usage(own, *both), "total_tokens": both[0]}},
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
    "says-stop-behind-pieces": {"reason": lambda own, end: Right.reason(own, end or own.body.get("stream"))},
    "ignores-stop": {"stopped": lambda own, text: (text, False)},
    "keeps-the-stop": {"stopped": stopped_behind},
    "mixes-pages": {"reading": mixed, "held_s": HELD_S},
    "pads-beside-longer": {
        "said": lambda own, ids: Right.said(own, ids[any(one.most() > own.most() for one in FLIGHT) :]),
        "held_s": HELD_S,
    },
    "token-of-the-page-before": {"said": lambda own, ids: Right.said(own, [*swapped("ids", ids[:1]), *ids[1:]])},
    "loses-the-last-piece": {"pieces": lambda own, text: Right.pieces(own, text)[:-1]},
    "sends-a-piece-twice": {"pieces": lambda own, text: [*(all_of := Right.pieces(own, text))[:1], *all_of]},
    "cuts-characters": {"pieces": lambda own, text: [bytes([one]).decode(errors="replace") for one in text.encode()]},
    "pieces-without-tokens": {"pieces": lambda own, text: [TOKEN.sub("", one) for one in Right.pieces(own, text)]},
    "logprobs-of-the-next": {"logprobs": lambda own, ids, of: Right.logprobs(own, ids, [*of[1:], *of[:1]])},
    "logprobs-of-heat": {"logprobs": lambda own, ids, of: Right.logprobs(own, ids, [one / 0.7 for one in of])},
    "unsorted-logprobs": {"best": lambda own, logits: Right.best(own, logits)[::-1]},
}
MISTAKES = {"right": Right, **{name: type(name, (Right,), dict(parts)) for name, parts in PARTS.items()}}
