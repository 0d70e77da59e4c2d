"""The worker: a process of the vendor's environment that loads a checkpoint once and answers requests.

Where the session stands in for the vendor's code, it is a process of the caller's own environment.
Its client starts it; see :mod:`pytest_dsocr.reference.process`. Only what an environment without torch can
import is imported before it has said hello.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.provenance import versions
from pytest_dsocr.reference.environment import PINS, check_vendor_folder
from pytest_dsocr.reference.inspection import modules_of
from pytest_dsocr.reference.wire import (
    Failure,
    Hello,
    Progress,
    Request,
    Response,
    decode,
    encode,
    unpack_case,
    write_tensors,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.reference.protocol import Runtime

Reply = tuple[Any, Mapping[str, "Tensor"], Mapping[str, Any]]
"""A result as JSON, the tensors that go with it, and its provenance."""


def main(folder: str) -> None:
    """Answer what comes on stdin until it closes; ``folder`` is for tensors."""
    requests, answers = _take_pipes()

    def send(line: bytes) -> None:
        answers.write(line)
        answers.flush()

    server = RuntimeServer(Path(folder), send)
    inbox: SimpleQueue[Request] = SimpleQueue()
    send(encode(Hello(os.getpid(), versions())))
    Thread(target=_listen, args=(requests, inbox, folder), daemon=True).start()
    while True:
        send(server.answer(inbox.get()))


class RuntimeServer:
    """Where requests are answered."""

    def __init__(self, folder: Path, send: Callable[[bytes], None]) -> None:
        self._folder, self._send = folder, send
        self._request_id = 0
        self._runtime: Runtime | None = None
        self._methods: dict[str, Callable[[dict[str, Any]], Reply]] = {
            "load": self._load,
            "inputs": self._inputs,
            "observe": self._observe,
            "stage_times": self._stage_times,
            "flops": self._flops,
            "explain": self._explain,
        }

    def answer(self, request: Request) -> bytes:
        """Do what is asked and give the line that answers it, whatever exception it ends in."""
        self._request_id = request.id
        try:
            result, tensors, provenance = self._methods[request.method](request.params)
            described = write_tensors(self._folder / f"{request.id}.safetensors", tensors)
            return encode(Response(request.id, result, described, dict(provenance)))
        except DsocrError as error:
            return encode(Failure(request.id, type(error).__name__, str(error), ""))
        except (Exception, SystemExit) as error:
            return encode(Failure(request.id, type(error).__name__, str(error), traceback.format_exc()))

    @property
    def _loaded(self) -> Runtime:
        assert self._runtime, "load comes first"
        return self._runtime

    def _load(self, params: dict[str, Any]) -> Reply:
        runtime, vendor = params.pop("runtime"), params.pop("vendor")
        self._runtime = self._loader(runtime, vendor)(**params, on_progress=self._progress)
        if params["device"].startswith("cuda:"):
            import torch

            torch.cuda.set_device(params["device"])  # where infer's own .cuda() puts its inputs
        return {}, {}, self._runtime.provenance.to_json()

    def _loader(self, runtime: str, vendor: str | None) -> Callable[..., Runtime]:
        """Give what loads the class ``module:name``, of the vendor's files where there are some."""
        if vendor is not None:
            check_vendor_folder(Path(vendor))
            check_versions(Path(vendor))
        module, _, name = runtime.partition(":")
        load: Callable[..., Runtime] = getattr(import_module(module), name).load
        return load if vendor is None else partial(load, Path(vendor))

    def _inputs(self, params: dict[str, Any]) -> Reply:
        from pytest_dsocr.observation.packing import pack_inputs

        inputs = self._loaded.inputs(unpack_case(params["case"]), keep_values=params["keep_values"])
        return *pack_inputs(inputs), self._loaded.provenance.to_json()

    def _observe(self, params: dict[str, Any]) -> Reply:
        from pytest_dsocr.observation.packing import pack

        case, out = unpack_case(params.pop("case")), params.pop("out")
        observation = self._loaded.observe(case, out=out and Path(out), **params)
        assert observation.provenance, "a runtime says how it was made"
        return *pack(observation), observation.provenance.to_json()

    def _stage_times(self, params: dict[str, Any]) -> Reply:
        times = self._loaded.stage_times(unpack_case(params["case"]), params["turns"])
        return times, {}, self._loaded.provenance.to_json()

    def _flops(self, params: dict[str, Any]) -> Reply:
        return self._loaded.flops(unpack_case(params["case"])), {}, self._loaded.provenance.to_json()

    def _explain(self, params: dict[str, Any]) -> Reply:
        from pytest_dsocr.reference.protocol import Explaining

        assert isinstance(self._loaded, Explaining), "the vendor's code explains nothing"
        return self._loaded.explain(params["question"]), {}, self._loaded.provenance.to_json()

    def _progress(self, what: str, done: int, total: int | None) -> None:
        self._send(encode(Progress(self._request_id, what, done, total)))


def check_versions(vendor: Path) -> None:
    """Raise ``DsocrError`` where the folder's code uses transformers, and another version of it is here."""
    [pin] = (pin for pin in PINS if pin.startswith("transformers=="))
    found, needed = versions().get("transformers", "none"), pin.split("==")[1].rpartition(".")[0]
    if "transformers" in modules_of(vendor) and not found.startswith(f"{needed}."):
        raise DsocrError(
            f"the code in {vendor} needs transformers {needed}, and the worker's environment has {found}; "
            f"make one with `dsocr vendor setup {vendor}`"
        )


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Take stdin and stdout for the protocol; whatever else reads finds nothing, whatever prints goes to stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def _listen(requests: IO[bytes], inbox: SimpleQueue[Request], folder: str) -> None:
    """Hand requests on; where the client has gone, end at once, whatever is under way, and leave nothing behind."""
    try:
        for line in requests:
            request = decode(line)
            assert isinstance(request, Request)
            inbox.put(request)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
