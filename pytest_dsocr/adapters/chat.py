"""Requests to a server with OpenAI's protocol, each with a limit of time and size; nothing is tried again."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from pytest_dsocr.adapters.completion import (
    FAILED,
    Completion,
    OverloadedError,
    ServerDownError,
    ServerHungError,
    StatusError,
)
from pytest_dsocr.adapters.fields import MOST_BYTES
from pytest_dsocr.base.words import fit
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.subjects.calls import current, hung
from pytest_dsocr.subjects.time_limit import Overdue

SHOWN = 160
MOST_SILENT = 3
LONGEST_S = 1e6
"""Longest time that a socket and a timer accept, in seconds."""
OVERLOADED = (429, 502, 503, 504)
NO_MEMORY = re.compile(r"out of memory|OutOfMemory", re.IGNORECASE)
DATA, DONE = b"data:", b"[DONE]"
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
T = TypeVar("T")
ChatFaultT = TypeVar("ChatFaultT", bound=SubjectFaultError)


class _Message(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct):
    message: _Message = _Message()
    delta: _Message | None = None
    finish_reason: Any = None
    logprobs: Any = None


class _Usage(Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None


class _Answer(Struct, omit_defaults=True):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


@dataclass
class FailureStreak:
    """Number of consecutive requests whose answer did not start in time."""

    length: int = 0


@dataclass(frozen=True)
class Chat:
    """Asks a server."""

    url: str
    key: str = field(repr=False)
    """Key that the server requires; empty if none."""
    limit_s: float
    """Seconds allowed for one answer."""
    option: str = "time_limit"
    """Name of the option that raises the limit."""
    now: Callable[[], float] = time.perf_counter
    """Clock that times the pieces of an answer."""
    silent: FailureStreak = field(default_factory=FailureStreak, compare=False)
    """Count of silent requests; a silent server is given up, as each request would cost the limit."""

    def models(self) -> list[str]:
        """Return the names of the models that it lists."""
        with self._request("GET", "/models", None) as reply:
            return [model.id for model in reply.json(_Models, "data[].id").data]

    def whole(self, body: Mapping[str, Any]) -> Completion:
        """Ask for an answer in one piece."""
        missing = "a text in choices[0].message.content"
        with self._request("POST", "/chat/completions", {**body, "stream": False}) as reply:
            found = reply.json(_Answer, missing)
        choice = (found.choices or [_Choice()])[0]
        if choice.message.content is None:
            raise self.fault(f"answered {_shown(msgspec.to_builtins(found))}, without {missing}; see its log")
        ended_by = str(choice.finish_reason or "")
        return Completion(choice.message.content, ended_by=ended_by, logprobs=choice.logprobs, **_counted(found.usage))

    def streamed(self, body: Mapping[str, Any]) -> Completion:
        """Request an answer piece by piece; return the whole once the server has marked its end."""
        pieces: list[str] = []
        ended_by, usage = "", None
        arrived_s = [self.now()]
        with self._request("POST", "/chat/completions", {**body, "stream": True}) as reply:
            is_whole = False
            for line in reply.lines():
                if not line.startswith(DATA):
                    continue
                data = line[len(DATA) :].strip()
                if data == DONE:
                    is_whole = True
                    break
                piece, reason, counted = self._piece(data)
                ended_by, is_whole, usage = reason or ended_by, is_whole or bool(reason), counted or usage
                pieces.append(piece)
                if piece:
                    arrived_s.append(self.now())
                reply.had = f"had sent {sum(map(len, pieces))} characters"
        if not is_whole:
            raise self.fault(f"broke off in mid-answer, when it {reply.had}; see its log")
        took_ms = tuple((after - before) * 1e3 for before, after in pairwise(arrived_s))
        first_ms, text = took_ms[0] if took_ms else None, "".join(pieces)
        return Completion(text, ended_by=ended_by, first_ms=first_ms, between_ms=took_ms[1:], **_counted(usage))

    def fault(self, what: str, kind: type[ChatFaultT] = SubjectFaultError) -> ChatFaultT:  # type: ignore[assignment]
        """Return a fault that states what the server did, then what to do."""
        return kind("read", f"the server at {self.url} {what}")

    def _piece(self, data: bytes) -> tuple[str, str, _Usage | None]:
        """Return the text of an event, the reason if the answer ends with it (else empty), and the counted tokens."""
        try:
            event = msgspec.json.decode(data, type=_Answer)
        except NO_JSON:
            event = _Answer()
        if event.error is not None:
            what = f"sent an error in mid-answer, {_shown(event.error)}; see its log"
            raise self.fault(what, ServerDownError if NO_MEMORY.search(what) else SubjectFaultError)
        if event.choices is None:
            what = _shown(data.decode(errors="replace"))
            raise self.fault(f"sent {what}, which is no piece of an answer; see its log")
        choice = (event.choices or [_Choice()])[0]
        return (choice.delta and choice.delta.content) or "", str(choice.finish_reason or ""), event.usage

    @contextmanager
    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Iterator[_Reply]:
        """Send a request; any error before its answer is read is a fault."""
        if self.silent.length >= MOST_SILENT:
            gone = (
                f"kept silent on {MOST_SILENT} requests in a row, and is asked no more; see its log, and start it again"
            )
            raise self.fault(gone, ServerHungError)
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        limit_s = min(self.limit_s, LONGEST_S)
        connection = kind(parts.hostname or "", parts.port, timeout=limit_s)
        reply = _Reply(self, connection)
        timer = threading.Timer(limit_s, reply.cut_off)
        timer.daemon = True
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        timer.start()
        try:
            given = None if body is None else json.dumps(body).encode()
            connection.request(method, f"{parts.path}{path}", given, headers)
            reply.begin(f"{method} {path}")
            yield reply
        except Overdue as overdue:
            reply.is_cut_off = True
            raise ServerHungError("read", str(hung("read", "read", current().limit_s("read")))) from overdue
        except ConnectionRefusedError as error:
            what = "cannot be reached (connection refused); start it, or name another"
            raise self.fault(what, ServerDownError) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(reply, error) from error
        finally:
            timer.cancel()
            timer.join()
            reply.close()
            self.silent.length = self.silent.length + 1 if reply.is_silent else 0

    def _broken(self, reply: _Reply, error: Exception) -> SubjectFaultError:
        """Say how a connection ended that was there."""
        reply.is_cut_off |= isinstance(error, TimeoutError)
        if reply.is_cut_off:
            slow = (
                f"took more than {self.limit_s:g} s, when it {reply.had}; if it was only slow, raise its {self.option}"
            )
            return self.fault(slow, ServerHungError)
        if isinstance(error, http.client.IncompleteRead):
            return self.fault(f"broke off in mid-answer, when it {reply.had}; see its log")
        what = fit(f"{type(error).__name__}: {error}", SHOWN)
        return self.fault(f"broke the connection off ({what}), when it {reply.had}; see its log")


class _Reply:
    """An answer that arrives."""

    def __init__(self, chat: Chat, connection: http.client.HTTPConnection) -> None:
        self._chat, self._connection = chat, connection
        self._response: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        self.had, self.is_cut_off = "had sent nothing", False

    @property
    def is_silent(self) -> bool:
        """Whether the time was up before the answer started."""
        return self.is_cut_off and self._response is None

    def cut_off(self) -> None:
        """End the exchange from another thread at any point: the socket's own timeout restarts with every byte."""
        self.is_cut_off = True
        if line := self._socket or self._connection.sock:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def begin(self, what: str) -> None:
        """Wait for the answer's first line; raise ``StatusError`` if it is a refusal."""
        self._socket = self._connection.sock  # the connection drops it if the answer has no length
        response = self._response = self._connection.getresponse()
        if response.status != http.client.OK:
            said = response.read(4 * SHOWN).decode(errors="replace")
            what = f"{response.status} {response.reason} to {what}: {_shown(said)}; see its log"
            is_down = response.status in OVERLOADED or (response.status >= FAILED and NO_MEMORY.search(what))
            refusal = self._chat.fault(f"answered {what}", OverloadedError if is_down else StatusError)
            refusal.status = response.status
            raise refusal

    def json(self, kind: type[T], missing: str) -> T:
        """Return the answer as a value of ``kind``; raise an error that names ``missing`` if it is none."""
        content = b"".join(self.lines())
        text = _shown(content.decode(errors="replace"))
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError:
            raise self._chat.fault(f"answered {text}, without {missing}; see its log") from None
        except NO_JSON:
            raise self._chat.fault(f"answered {text}, which is no JSON; name its /v1") from None

    def lines(self) -> Iterator[bytes]:
        """Yield its lines as they arrive."""
        assert self._response
        size, wanted = 0, self._response.length
        while line := self._response.readline(MOST_BYTES):
            yield line
            size += len(line)
            if size > MOST_BYTES:
                raise self._chat.fault(f"sent more than {MOST_BYTES >> 20} MiB; let it stop at max_tokens")
        if self.is_cut_off:
            raise TimeoutError
        if wanted is not None and size < wanted:
            raise http.client.IncompleteRead(b"", wanted - size)

    def close(self) -> None:
        """Listen no more."""
        if self._response:
            self._response.close()
        self._connection.close()


def _counted(usage: _Usage | None) -> dict[str, Any]:
    counted = {} if usage is None else msgspec.to_builtins(usage)
    return {name: value for name, value in counted.items() if isinstance(value, int)}


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(fit(" ".join(text.split()), SHOWN))
