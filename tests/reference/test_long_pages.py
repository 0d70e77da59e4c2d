"""What a worker sends of a long page: numbers of each token, and never a number for each word of the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.live.wire import Request, Response, decode, pack_case
from pytest_dsocr.reference.live.worker import RuntimeServer
from pytest_dsocr.session_reference.reference import RUNTIME as OF_SESSION
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN

CHECKPOINT = "synthetic:small"
SHORT, LONG = 8, 72
RUNTIMES = {
    "vendor": (f"{STAND_IN}", "pytest_dsocr.reference.vendor_code.runtime:VendorRuntime"),
    "session": (None, OF_SESSION),
}
MOST_BYTES_A_TOKEN = 500
"""Its best five, and a sign of progress or two; its logits would be half a megabyte."""


class Server:
    """A worker in this process, and the bytes that it sends."""

    def __init__(self, folder: Path, vendor: str | None, runtime: str) -> None:
        self.folder, self.sent_bytes = folder, 0
        self._server = RuntimeServer(folder, self._send)
        setup = {"checkpoint": CHECKPOINT, "device": "cpu", "dtype": "float32", "attention": "eager", "command": ""}
        self.ask("load", vendor=vendor, runtime=runtime, **setup)

    def ask(self, method: str, **params: Any) -> Response:
        self.sent_bytes = 0
        line = self._server.answer(Request(1, method, params))
        self._send(line)
        for file in self.folder.glob("*.safetensors"):
            self.sent_bytes += file.stat().st_size
            file.unlink()
        answer = decode(line)
        assert isinstance(answer, Response), answer
        return answer

    def _send(self, line: bytes) -> None:
        self.sent_bytes += len(line)


@pytest.mark.parametrize(("vendor", "runtime"), RUNTIMES.values(), ids=RUNTIMES)
def test_what_is_sent_of_a_token_does_not_grow_with_the_vocabulary(
    vendor: str | None, runtime: str, tmp_path: Path
) -> None:
    (folder := tmp_path / "sent").mkdir()
    server, page = Server(folder, vendor, runtime), write_page("tiny", tmp_path)
    sent = []
    with torch.no_grad():
        for tokens in (SHORT, LONG):
            case = pack_case(make_case(page, "markdown", "tiny", tokens))
            answer = server.ask("observe", case=case, keep_values=True, keep_logits=False, out=None)
            assert len(answer.result["tokens"]) == tokens
            sent.append(server.sent_bytes)
    a_token = (sent[1] - sent[0]) / (LONG - SHORT)
    assert SYNTHETIC["small"].decoder.vocab_size == 129_280
    assert 40 < a_token < MOST_BYTES_A_TOKEN
