"""Thirty mistakes of servers, each the method of :class:`~tests.adapters.serving.Right` that it gets wrong."""

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from PIL import Image
from torch import Tensor

from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.explain.catalogue.pixels import GRIDS
from pytest_dsocr.families import DEFAULT
from tests.adapters.server import TOKEN, Handler
from tests.adapters.serving import FLIGHT, Reading, Right, session


@dataclass(frozen=True)
class Cut(Preset):
    """A preset with a rule of grids of its own."""

    rule: Callable[..., Grid] = GRIDS["six"][1]

    def grid(self, width_px: int, height_px: int) -> Grid:
        return self.rule(width_px, height_px)


class CountsNoImage(Right):
    def usage(self, prompt: int, completion: int) -> dict[str, int]:
        return super().usage(1 + len(session().tokenizer.encode(self.text)), completion)


class CountsPagesAlike(Right):
    def usage(self, prompt: int, completion: int) -> dict[str, int]:
        return super().usage(273 * len(self.urls) + 1 + len(session().tokenizer.encode(self.text)), completion)


class CountsThePageBefore(Right):
    count: ClassVar[int] = 0

    def usage(self, prompt: int, completion: int) -> dict[str, int]:
        before, type(self).count = self.count or prompt, prompt
        return super().usage(before, completion)


class CountsOneLess(Right):
    def usage(self, prompt: int, completion: int) -> dict[str, int]:
        return super().usage(prompt, completion - 1)


class SixCrops(Right):
    def preset(self) -> Preset:
        return Cut(**super().preset().sizes)


class CutsAt640(Right):
    def preset(self) -> Preset:
        return Cut(**super().preset().sizes, rule=GRIDS["limit-639"][1])


class BaseForGundam(Right):
    def preset(self) -> Preset:
        return DEFAULT.presets["base"]


class IgnoresExif(Right):
    def opened(self, data: bytes) -> Image.Image:
        return Image.open(io.BytesIO(data)).convert("RGB")


class DecodesJpegsSmall(Right):
    def opened(self, data: bytes) -> Image.Image:
        page, upright = Image.open(io.BytesIO(data)), super().opened(data)
        page.draft("RGB", (page.width // 2, page.height // 2))
        return upright if page.format != "JPEG" else super().opened(data).reduce(2).resize(upright.size)


class KeepsAPageByItsHost(Right):
    pages: ClassVar[dict[str, bytes]] = {}

    def fetched(self, url: str) -> bytes:
        host = urlsplit(url).netloc
        return self.pages.setdefault(host, super().fetched(url)) if host else super().fetched(url)


class KeepsAPageByItsSize(Right):
    def key(self, page: Image.Image) -> Any:
        return page.size


class Samples(Right):
    heat = 0.7


class NoNgramRule(Right):
    ngram = 0


class NgramRuleOf30(Right):
    ngram = 30


class OneTokenMore(Right):
    def most(self) -> int:
        return super().most() + 1


class CapsAt100(Right):
    """And says that it was the end."""

    def most(self) -> int:
        return min(100, super().most())

    def reason(self, is_whole: bool) -> str:
        return "stop" if self.most() == 100 else super().reason(is_whole)


class SaysStop(Right):
    def reason(self, is_whole: bool) -> str:
        return "stop"


class SaysStopBehindPieces(Right):
    def reason_behind_pieces(self, reason: str) -> str:
        return "stop"


class IgnoresStop(Right):
    def stopped(self, text: str) -> tuple[str, bool]:
        return text, False


class KeepsTheStopWord(Right):
    def stopped(self, text: str) -> tuple[str, bool]:
        cut, is_stopped = super().stopped(text)
        return (text[: len(cut) + len(self.body["stop"][0])], True) if is_stopped else (text, False)


class MixesPages(Right):
    held_s = 0.05

    def reading(self) -> Reading:
        others = [one for one in FLIGHT if one.urls and one.urls != self.urls]
        return Right(others[0].body | {"max_tokens": self.most()}).reading() if others else super().reading()


class PadsBesideLonger(Right):
    held_s = 0.05

    def said(self, tokens: Sequence[int]) -> str:
        is_padded = any(one.most() > self.most() for one in FLIGHT)
        return super().said(tokens[1:] if is_padded else tokens)


class KeepsItsNgrams(Right):
    """Those of all pages before."""

    said_before: ClassVar[list[int]] = []

    def key(self, page: Image.Image) -> Any:
        return object()

    def begun(self, inputs: Any, prompt: str) -> Reading:
        made = super().begun(inputs, prompt)
        for token in self.said_before[-500:]:
            made.ban.push(token)
        return made

    def said(self, tokens: Sequence[int]) -> str:
        self.said_before.extend(tokens)
        return super().said(tokens)


class LosesTheLastPiece(Right):
    def pieces(self, text: str) -> list[str]:
        return super().pieces(text)[:-1]


class SendsAPieceTwice(Right):
    def pieces(self, text: str) -> list[str]:
        return [one for k, one in enumerate(super().pieces(text)) for _ in range(1 + (k == 3))]


class CutsCharacters(Right):
    def pieces(self, text: str) -> list[str]:
        own = text.encode()
        return [own[at : at + 3].decode(errors="replace") for at in range(0, len(own), 3)]


class TakesTokensOutOfPieces(Right):
    def pieces(self, text: str) -> list[str]:
        return [TOKEN.sub("", one) for one in super().pieces(text)]


class LogprobsOfTheNext(Right):
    def logprobs(self, tokens: Sequence[int], logits: Sequence[Tensor]) -> Any:
        return super().logprobs(tokens, [*logits[1:], logits[0]])


class LogprobsOfHeat(Right):
    def logprobs(self, tokens: Sequence[int], logits: Sequence[Tensor]) -> Any:
        return super().logprobs(tokens, [one / 0.7 for one in logits])


class UnsortedLogprobs(Right):
    def best(self, logits: Tensor) -> list[tuple[int, float]]:
        return super().best(logits)[::-1]


MISTAKES: Mapping[str, type[Right]] = {one.__name__: one for one in Right.__subclasses__()}


class Serving(Handler):
    """Answers each request by the class that its path names."""

    def do_POST(self) -> None:  # noqa: N802 - its name in the standard library
        {**MISTAKES, "Right": Right}[self.deed](self.body()).serve(self)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Serving)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
