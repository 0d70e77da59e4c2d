"""``http:``: a server that speaks as OpenAI's does; ``http://HOST:PORT/v1?model=NAME``, or ``http:FILE.toml``.

See ``docs/adapters.md``. What the server does is probed and reported before any page is compared.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import field

from pytest_dsocr.adapters import fields
from pytest_dsocr.adapters.chat import Chat
from pytest_dsocr.adapters.completion import Completion
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level
from pytest_dsocr.subjects.calls import LOAD, guarded, refusal
from pytest_dsocr.subjects.loading import HTTP
from pytest_dsocr.subjects.protocol import Offers, Setup

LEVEL = Level.TEXT
OWN_PROCESS = True


class ServerOptions(fields.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a server and of its requests."""

    url: str = ""
    model: str = ""
    """Empty: the only one that it lists."""
    prompt: str = "{text}"
    stream: bool = True
    key_env: str = ""
    """Name of the environment variable with the server's key."""
    start_limit: fields.PositiveSeconds = 60.0
    """For each answer of the handshake."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a request; None takes one out."""


OPTIONS = {*ServerOptions.__struct_fields__} - {"url", "body"}
"""Options that a query may set; anything else in it is a field of the request."""


def offers(spec: str) -> Offers:
    """Return what a server offers; raise ``DsocrError`` if none is named, or an option is wrong."""
    return Offers.of(options_of(spec))


def subject(spec: str, setup: Setup) -> ServerSubject:
    """Return the subject that ``spec`` names, after a handshake with its server.

    Raises:
        DsocrError: if the server does not answer, or changes the text so that no page could be right.
    """
    with guarded(LOAD, "server", refusal("the server could not be asked", "see the error it came from")):
        made = ServerSubject(options_of(spec), setup)
        made.greet()
    return made


def options_of(spec: str) -> ServerOptions:
    """Read a server and its options from a subject's name, or the file that it names."""
    rest = spec.removeprefix(HTTP)
    options = fields.read_options(ServerOptions, rest, lambda: _typed(spec))
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise DsocrError(f"{options.url!r} is no server; give http://HOST:PORT/v1?model=NAME, or {HTTP}FILE.toml")
    if options.key_env and options.key_env not in os.environ:
        raise DsocrError(f"there is no environment variable {options.key_env} with the server's key; set it")
    fields.check_fields([options.prompt, json.dumps(options.body)], fields.OF_PAGE + fields.OF_SETUP)
    return options


class ServerSubject:
    """L0: a request for each page."""

    def __init__(self, options: ServerOptions, setup: Setup) -> None:
        self._options, self._setup = options, asdict(setup)
        key = os.environ[options.key_env] if options.key_env else ""
        self._chat = Chat(options.url.rstrip("/"), key, options.time_limit)
        self._model = options.model
        self.presets, self.prompts = options.presets, options.prompts
        self.first_token_ms: float | None = None
        self.ended_by = ""

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._chat.url

    def greet(self) -> None:
        """Find out what the server does, and report it. What is in one preset offers no other, unless it names some."""
        # Imported late: collecting tests reads this module, and must not load torch.
        from pytest_dsocr.adapters.handshake import shake_hands
        from pytest_dsocr.engine.checkpoint import resolve

        own = resolve(self._setup["checkpoint"])
        chat = replace(self._chat, limit_s=self._options.start_limit, option="start_limit")
        met = shake_hands(chat, self._options.model, self._body, own.architecture.family, own.tokenizer)
        self._model = met.model
        self.presets = self._options.presets or ((met.preset,) if met.preset else None)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read a page with the server."""
        body = self._body(page, prompt, preset, max_new_tokens)
        answer = self._chat.streamed(body) if self._options.stream else self._chat.whole(body)
        self.first_token_ms, self.ended_by = answer.first_ms, answer.ended_by
        return answer.text.removesuffix(EOS)  # one that keeps special tokens may show this one too

    def ask(
        self,
        case: Case,
        *,
        page: Path | str = "",
        more: Sequence[Path] = (),
        text: str = "",
        stream: bool = False,
        answer: str = "",
        **body: Any,
    ) -> Completion:
        """Return the server's complete answer to a case, or to another ``page`` instead, which may be a URL.

        ``more`` are further images, ``text`` replaces the prompt's text, ``answer`` is the start of the answer, and
        ``body`` further fields. Raises ``StatusError`` if a field is refused.
        """
        asked = {**self._body(page or case.page, case.prompt, case.preset, case.max_new_tokens), **body}
        if more or text:
            *pictures, own = asked["messages"][0]["content"]
            pictures += [_picture(one) for one in more]
            asked["messages"] = [{"role": "user", "content": [*pictures, {**own, "text": text or own["text"]}]}]
        if answer:
            asked["messages"] = [*asked["messages"], {"role": "assistant", "content": answer}]
        found = self._chat.streamed(asked) if stream else self._chat.whole(asked)
        return replace(found, text=found.text.removesuffix(EOS))

    def _body(self, page: Path | str, prompt: str, preset: Preset, max_new_tokens: int) -> dict[str, Any]:
        values = {**self._setup, **fields.of_page(page, prompt, preset, max_new_tokens)}
        text: fields.FieldValues = {"type": "text", "text": fields.filled(self._options.prompt, values)}
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": [_picture(page), text]}],
            "max_tokens": max_new_tokens,
            "temperature": 0,
            "skip_special_tokens": False,
            **{name: _filled(value, values) for name, value in self._options.body.items()},
        }
        return {name: value for name, value in body.items() if value is not None}


def _picture(page: Path | str) -> fields.FieldValues:
    return {"type": "image_url", "image_url": {"url": _data_url(page)}}


def _data_url(page: Path | str) -> str:
    if isinstance(page, str):
        return page
    kind = mimetypes.guess_type(page.name)[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(page.read_bytes()).decode()}"


def _filled(value: Any, values: fields.FieldValues) -> Any:
    """Fill in every text of a JSON value."""
    if isinstance(value, str):
        return fields.filled(value, values)
    if isinstance(value, Mapping):
        return {name: _filled(item, values) for name, item in value.items()}
    return [_filled(item, values) for item in value] if isinstance(value, list) else value


def _typed(spec: str) -> dict[str, Any]:
    """Read a server and its options from the command line; anything but an option is a field of the request."""
    url, _, query = spec.partition("?")
    options: dict[str, Any] = {"url": url, "body": {}}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in ("presets", "prompts"):
            options[name] = text.split(",")
        elif name in OPTIONS:
            options[name] = text if name in ("model", "prompt", "key_env") else _json(text)
        else:
            options["body"][name] = _json(text)
    return options


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
