"""A server over the engine on ``mini`` that gives all that OpenAI's API has, and makes one mistake by its path.

``/right/v1``, or a name in :mod:`tests.adapters.mistakes`. Shapes: V vocabulary.
"""

import re
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.adapters.server import TOKEN, Handler

LOCK = threading.RLock()
FLIGHT: list[Any] = []
"""The bodies of requests that are being answered."""


@cache
def engine() -> Any:
    torch.set_num_threads(1)
    return Engine.from_checkpoint("mini", instrument="off")


@dataclass
class Reading:
    """Output for a page, decoded as far as it was requested."""

    prompt_tokens: int
    state: Any
    ban: Any
    tokens: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    """``[V]`` of each token, before any rule."""

    def up_to(self, most: int, heat: float) -> None:
        while len(self.tokens) < most and self.tokens[-1:] != [engine().policy.eos_id]:
            if self.tokens:
                engine().decode_step(self.state, self.tokens[-1])
            logits = self.state.logits[0].clone()
            token = pick(logits[None], [self.ban.banned()])[0]
            if heat:
                token = int(torch.multinomial(torch.softmax(logits / heat, -1), 1))
            self.tokens.append(token)
            self.logits.append(logits)
            self.ban.push(token)


READINGS: dict[Any, Reading] = {}


class Right:
    """Answers one request as it should be answered, a method for each part of it."""

    ngram = 20
    found = ""
    """The checks that find what it gets wrong."""
    heat: ClassVar[float | None] = None
    held_s = 0.0

    def __init__(self, body: Any) -> None:
        self.body, self.user = body, body["messages"][0]["content"]
        self.text = self.user if isinstance(self.user, str) else self.user[-1]["text"]
        self.urls = [] if isinstance(self.user, str) else [one["image_url"]["url"] for one in self.user[:-1]]
        self.answer = body["messages"][1]["content"] if len(body["messages"]) > 1 else ""

    def fetched(self, url: str) -> bytes:
        with urllib.request.urlopen(url) as reply:
            return bytes(reply.read())

    def opened(self, data: bytes) -> Image.Image:
        return load_image(data)

    def preset(self) -> Preset:
        return DEEPSEEK_OCR.presets[self.body["preset"]]

    def most(self) -> int:
        return int(self.body["max_tokens"])

    def key(self, page: Image.Image) -> Any:
        return sha256(page.tobytes()).digest(), page.size

    def reading(self) -> Reading:
        page, preset, prompt = self.opened(self.fetched(self.urls[0])), self.preset(), f"<image>\n{self.text}"
        heat = self.body.get("temperature", 1) if self.heat is None else self.heat
        sizes = (preset.base_size, preset.image_size, preset.crop, preset.grid(*page.size))
        key = (self.key(page), sizes, prompt, self.answer, self.ngram, heat, self.body.get("seed") if heat else 0)
        with LOCK:
            if key not in READINGS:
                READINGS[key] = self.begun(prepare_inputs(page, prompt, preset, engine().tokenizer))
            READINGS[key].up_to(self.most(), heat)
            return READINGS[key]

    def begun(self, inputs: Any) -> Reading:
        own = engine()
        state, ids = own.prefill(inputs), inputs.input_ids[0].tolist()
        ban = replace(own.policy, no_repeat_ngram_size=self.ngram).ban(ids)
        for token in (behind := own.tokenizer.encode(self.answer)):
            own.decode_step(state, token)
            ban.push(token)
        return Reading(len(ids) + len(behind), state, ban)

    def said(self, tokens: Sequence[int]) -> str:
        text = clean_output(engine().tokenizer.decode(tokens))
        return TOKEN.sub("", text) if self.body.get("skip_special_tokens", True) else text

    def stopped(self, text: str) -> tuple[str, bool]:
        at = min((text.index(word) for word in self.body.get("stop") or () if word in text), default=-1)
        return (text, False) if at < 0 else (text[:at], True)

    def usage(self, prompt: int, completion: int) -> dict[str, int]:
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def reason(self, is_whole: bool) -> str:
        return "stop" if is_whole else "length"

    def best(self, logits: Tensor) -> list[tuple[int, float]]:
        values, ids = torch.log_softmax(logits, -1).topk(self.body["top_logprobs"])
        return [*zip(ids.tolist(), values.tolist(), strict=True)]

    def logprobs(self, tokens: Sequence[int], logits: Sequence[Tensor]) -> Any:
        def named(token: int, value: Any) -> dict[str, Any]:
            return {"token": engine().tokenizer.decode([token]), "logprob": float(value)}

        content = []
        for token, one in zip(tokens, logits, strict=True):
            best = [named(*other) for other in self.best(one)]
            content.append({**named(token, torch.log_softmax(one, -1)[token]), "top_logprobs": best})
        return {"content": content}

    def pieces(self, text: str) -> list[str]:
        return re.findall(r"\s*\S+|\s+$", text)

    def refused(self) -> bool:
        """Whether a request has another number of images than one, or a typed mark."""
        return len(self.urls) > 1 or IMAGE in self.text

    def result(self) -> tuple[str, str, dict[str, int], Any]:
        if not self.urls:
            return "", "stop", self.usage(1 + len(engine().tokenizer.encode(self.text)), 1), None
        own, most = self.reading(), self.most()
        tokens, eos = own.tokens[:most], engine().policy.eos_id
        said = [token for token in tokens if token != eos]
        text, is_stopped = self.stopped(self.said(tokens))
        logprobs = self.logprobs(said, own.logits[: len(said)]) if self.body.get("logprobs") else None
        return text, self.reason(is_stopped or eos in tokens), self.usage(own.prompt_tokens, len(tokens)), logprobs

    def serve(self, handler: Handler) -> None:
        if self.refused():
            handler.send_error(400, "give one image and no mark of your own")
            return
        FLIGHT.append(self)
        time.sleep(self.held_s)
        text, reason, usage, logprobs = self.result()
        FLIGHT.remove(self)
        if not self.body.get("stream"):
            choice = {"message": {"content": text}, "finish_reason": reason, "logprobs": logprobs}
            handler.give({"choices": [choice], "usage": usage})
            return
        handler.begin_stream()
        for piece in self.pieces(text):
            handler.send_event({"choices": [{"delta": {"content": piece}}]})
        handler.send_event({"choices": [{"delta": {}, "finish_reason": reason}]})
        handler.send_event({"choices": [], "usage": usage})
        handler.wfile.write(b"data: [DONE]\n\n")
