"""A server that speaks as OpenAI's does, with an answer ready; its path selects how it misbehaves.

``/DEED/v1``: a deed is done to pages, and, where it begins with ``load-``, to the handshake as well. Names of
:mod:`tests.adapters.mistakes` are answered by the engine.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from pytest_dsocr.adapters.handshake import PROBED_TOKENS
from pytest_dsocr.contract.prompt import EOS

TEXT = "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nMinutes"
FLAT = "<|det|>title [1, 2, 3, 4]<|/det|>Minutes"
TOKEN = re.compile(r"<\|[^|]*\|>")
PIECE, SLOW_PAUSE_S = 7, 6000
Deed: TypeAlias = Callable[["Handler", Any], None]


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the standard library
        """Say nothing."""

    @property
    def deed(self) -> str:
        return self.path.split("/")[1]

    def do_GET(self) -> None:
        if self.deed == "unlisted":
            return self.send_error(404)
        names = ["one", "two"] if self.deed == "many" else ["one"]
        return self.give({"data": [{"id": name} for name in names]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "-" in self.deed.removeprefix("load-") or self.deed == "right":
            from tests.adapters.mistakes import MISTAKES  # brings torch

            MISTAKES[self.deed](body).serve(self)
            return None
        deed = self.deed.removeprefix("load-")
        if (deed == self.deed and body["max_tokens"] == PROBED_TOKENS) or not (do := DEEDS.get(deed)):
            return self.answer(body)
        return do(self, body)

    def drip(self) -> None:
        """Send bytes for ever, and no line."""
        while True:
            self.wfile.write(b"x")
            time.sleep(0.05)

    def answer(self, body: Any) -> None:
        """Answer as a good server does, but for what it does to tokens and the prompt."""
        given = body["messages"][0]["content"]
        prompt = given[-1]["text"]
        is_lost = body.get("skip_special_tokens", True) or self.deed.startswith("lost")
        text = FLAT if self.deed == "lost_flat" else TEXT
        text = TOKEN.sub("", text) if is_lost else text
        if self.deed == "echo":
            text = prompt + text
        if self.deed == "tells":
            text = json.dumps({**body, "messages": given[1:], "key": self.headers["Authorization"]})
        if body.get("stream"):
            return self.stream(text)
        return self.give({"choices": [{"message": {"content": text}}]})

    def give(self, value: object) -> None:
        self.give_bytes(json.dumps(value).encode())

    def give_bytes(self, value: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length or len(value)))
        self.end_headers()
        self.wfile.write(value)

    def stream(
        self, text: str, *, piece: int = PIECE, pause_s: float = 0.0, is_whole: bool = True, ended_by: str = "stop"
    ) -> None:
        self.begin_stream()
        for start in range(0, len(text), piece):
            self.send_event({"choices": [{"delta": {"content": text[start : start + piece]}}]})
            time.sleep(pause_s)
        if is_whole:
            self.send_event({"choices": [{"delta": {}, "finish_reason": ended_by}]})
            self.wfile.write(b"data: [DONE]\n\n")

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

    def send_event(self, event: object) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()


def drips(handler: Handler, body: Any) -> None:
    handler.begin_stream()
    handler.drip()


def headers(handler: Handler, body: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drips: ")
    handler.drip()


def fails(message: str) -> Deed:
    """Send an error in the midst of a stream."""

    def fail(handler: Handler, body: Any) -> None:
        handler.begin_stream()
        handler.send_event({"error": {"message": message}})

    return fail


def dies(handler: Handler, body: Any) -> None:
    handler.stream(TEXT[:20], is_whole=False)
    os._exit(1)


DEEDS: dict[str, Deed] = {
    "error": lambda handler, body: handler.send_error(500, "Out of memory"),
    "crash": lambda handler, body: handler.send_error(500, "The engine died"),
    "strict": lambda handler, body: handler.send_error(422, "Unexpected fields: skip_special_tokens"),
    "busy": lambda handler, body: handler.send_error(503),
    "memory": fails("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "midway": fails("the engine died"),
    "drips": drips,
    "headers": headers,
    "dies": dies,
    "length": lambda handler, body: handler.stream(TEXT[:20], ended_by="length"),
    "html": lambda handler, body: handler.give_bytes(b"<html>a gateway</html>"),
    "deep": lambda handler, body: handler.give_bytes(b'data: {"error": ' + b"[" * 200_000),
    "odd": lambda handler, body: handler.give({"choices": []}),
    "silent": lambda handler, body: time.sleep(6000),
    "slow": lambda handler, body: handler.stream(TEXT, pause_s=SLOW_PAUSE_S),
    "breaks": lambda handler, body: handler.stream(TEXT[:20], is_whole=False),
    "short": lambda handler, body: handler.give_bytes(b'{"choices"', length=99),
    "huge": lambda handler, body: handler.stream("x" * 17 * 2**20, piece=2**20),
    "eos": lambda handler, body: handler.stream(f"{TEXT}{EOS}"),
}


if __name__ == "__main__":
    ThreadingHTTPServer.request_queue_size = 64
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until whoever started it is gone
