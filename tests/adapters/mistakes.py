"""Mistakes of servers: of each the parts of :class:`~tests.adapters.serving.Right` that it gets wrong."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.adapters.server import TOKEN
from tests.adapters.serving import FLIGHT, Right, engine

BEFORE: dict[str, Any] = {}
RING = 128
"""Tokens that Unlimited-OCR's cache keeps."""


def swapped(name: str, value: Any) -> Any:
    before, BEFORE[name] = BEFORE.get(name, value), value
    return before


def text_tokens(own: Right) -> int:
    return 1 + len(engine().tokenizer.encode(own.text))


def stopped_behind(own: Right, text: str) -> tuple[str, bool]:
    cut, is_stopped = Right.stopped(own, text)
    return (text[: len(cut) + len(own.body["stop"][0])], True) if is_stopped else (text, False)


def mixed(own: Right) -> Any:
    others = [one for one in FLIGHT if one.urls and one.urls != own.urls]
    return Right.reading(Right(others[0].body | {"max_tokens": own.most()}) if others else own)


def as_it_lies(own: Right, data: bytes) -> Image.Image:
    page = Image.open(io.BytesIO(data)).convert("RGB")
    page.info.pop("exif", None)  # the engine would turn it
    return page


def small_jpeg(own: Right, data: bytes) -> Image.Image:
    page = Right.opened(own, data)
    return page.reduce(2).resize(page.size) if data.startswith(b"\xff\xd8") else page


def unmarked(own: Right) -> Right:
    found = Right(own.body)
    found.text = own.text.replace(IMAGE, "").strip()
    return found


def is_warm(own: Right, ids: Sequence[int]) -> bool:
    """Return whether a page was read past the ring before."""
    was_read = len(ids) > RING and own.urls[0] in BEFORE
    BEFORE.update(dict.fromkeys(own.urls[: len(ids) > RING]))
    return was_read


def by_host(own: Right, url: str) -> bytes:
    host = urlsplit(url).netloc
    return BEFORE.setdefault(host, Right.fetched(own, url)) if host else Right.fetched(own, url)


PARTS: Mapping[str, Mapping[str, Any]] = {  # behind the name are the checks that find it
    "counts-no-image: prompt_tokens": {"usage": lambda it, _, said: Right.usage(it, text_tokens(it), said)},
    "counts-pages-alike: prompt_tokens": {"usage": lambda it, _, said: Right.usage(it, 273 + text_tokens(it), said)},
    "counts-the-page-before: prompt_tokens": {
        "usage": lambda it, prompt, said: Right.usage(it, swapped("count", prompt), said)
    },
    "counts-one-less: max_tokens": {"usage": lambda it, prompt, said: Right.usage(it, prompt, said - 1)},
    "six-crops: prompt_tokens": {
        "preset": lambda it: replace(Right.preset(it), tiling=replace(DEEPSEEK_OCR.tiling, most=6))
    },
    "total-is-the-prompt: max_tokens": {"usage": lambda it, *both: {**Right.usage(it, *both), "total_tokens": both[0]}},
    "base-for-gundam: prompt_tokens": {"preset": lambda it: DEEPSEEK_OCR.presets["base"]},
    "ignores-exif: exif": {"opened": as_it_lies},
    "small-jpeg: jpeg": {"opened": small_jpeg},
    "page-of-the-host: url": {"fetched": by_host},
    "page-of-the-size: in_turn": {"key": lambda it, page: page.size},
    "samples-always: temperature": {"heat": 0.7},
    "no-ngram-rule: ngram_rule": {"ngram": 0},
    "ngram-rule-of-30: ngram_rule": {"ngram": 30},
    "one-token-more: max_tokens": {"most": lambda it: Right.most(it) + 1},
    "ends-at-100": {
        "most": lambda it: min(100, Right.most(it)),
        "reason": lambda it, end: Right.reason(it, end or it.most() == 100),
    },
    "says-stop: finish_reason": {"reason": lambda it, end: "stop"},
    "says-stop-behind-pieces: streaming": {"reason": lambda it, end: Right.reason(it, end or it.body.get("stream"))},
    "ignores-stop: stop": {"stopped": lambda it, text: (text, False)},
    "keeps-the-stop: stop": {"stopped": stopped_behind},
    "mixes-pages: at_once": {"reading": mixed, "held_s": 0.05},
    "pads-beside-longer: beside_a_long_one": {
        "said": lambda it, ids: Right.said(it, ids[any(one.most() > it.most() for one in FLIGHT) :]),
        "held_s": 0.05,
    },
    "token-of-the-page-before: in_turn": {"said": lambda it, ids: Right.said(it, [*swapped("ids", ids[:1]), *ids[1:]])},
    "loses-the-last-piece: streaming": {"pieces": lambda it, text: Right.pieces(it, text)[:-1]},
    "sends-a-piece-twice: streaming": {"pieces": lambda it, text: [*(all_ := Right.pieces(it, text))[:1], *all_]},
    "cuts-characters": {"pieces": lambda it, text: [bytes([one]).decode(errors="replace") for one in text.encode()]},
    "pieces-without-tokens: streaming": {
        "pieces": lambda it, text: [TOKEN.sub("", one) for one in Right.pieces(it, text)]
    },
    "logprobs-of-the-next: logprobs": {"logprobs": lambda it, ids, of: Right.logprobs(it, ids, [*of[1:], *of[:1]])},
    "logprobs-of-heat: logits": {"logprobs": lambda it, ids, of: Right.logprobs(it, ids, [one / 0.7 for one in of])},
    "drops-the-second: two_images": {"refused": lambda it: IMAGE in it.text},
    "places-a-mark: typed_mark": {
        "refused": lambda it: len(it.urls) > 1,
        "reading": lambda it: Right.reading(unmarked(it)),
        "usage": lambda it, prompt, said: Right.usage(it, prompt * (1 + (IMAGE in it.text)), said),
    },
    "warm-ring: in_turn": {"said": lambda it, ids: Right.said(it, ids[: RING if is_warm(it, ids) else None])},
    "unsorted-logprobs: logprobs": {"best": lambda it, logits: Right.best(it, logits)[::-1]},
}
MISTAKES: dict[str, type[Right]] = {"right": Right}
SILENT = "reads-nothing"
for words, parts in PARTS.items():
    name, _, found = words.partition(": ")
    MISTAKES[name] = type(name, (Right,), {**parts, "found": found})
MISTAKES[SILENT] = type(SILENT, (Right,), {"said": lambda it, ids: ""})
