"""Worker process that loads a checkpoint once and answers requests of :mod:`pytest_dsocr.reference.client`.

It runs in the vendor's environment, or in the caller's own if the engine answers for the vendor's code.
At import it needs the standard library alone. An environment in which any package is missing still answers, and names
that package.
"""

from __future__ import annotations

import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.subjects.isolation.messages import REFUSAL, Channel
from pytest_dsocr.subjects.isolation.transport import limit, serve

if TYPE_CHECKING:
    from pytest_dsocr.reference.protocol import Runtime


def main(folder: str, pipe: str) -> None:
    """Answer requests from the file descriptor ``pipe``; at the end, delete the temporary ``folder``."""
    serve(int(pipe), lambda channel: RuntimeServer(channel).answer, lambda: shutil.rmtree(folder, ignore_errors=True))


class RuntimeServer:
    """Server of one runtime."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._limit_s = 0.0
        self._runtime: Runtime | None = None

    def answer(self, request: Mapping[str, Any]) -> None:
        """Execute a request, and send the result or the exception."""
        self._limit_s = request["limit_s"]
        own: Mapping[str, Callable[..., Any]] = {"versions": _versions, "import": _import_code, "load": self._load}
        method, params = request["method"], request["params"]
        try:
            value = own[method](**params) if method in own else self._asked(method, params)
            self._channel.send("answer", value)
        except (Exception, SystemExit) as error:
            trace = "" if isinstance(error, DsocrError) else traceback.format_exc()
            self._channel.send(REFUSAL, {"kind": type(error).__name__, "message": str(error), "traceback": trace})

    def _load(self, runtime: str, vendor: Path | None, **how: Any) -> dict[str, Any]:
        """Load the runtime ``module:name``, with the vendor's files if there are any; return its provenance."""
        module, _, name = runtime.partition(":")
        if vendor is not None:
            check_code(vendor)
        load: Callable[..., Runtime] = getattr(import_module(module), name).load
        load = load if vendor is None else partial(load, vendor)
        self._runtime = load(**how, on_progress=self._progress)
        if how["device"].startswith("cuda:"):
            import torch

            torch.cuda.set_device(how["device"])  # infer's own .cuda() uses the current device
        return self._runtime.provenance.to_json()

    def _asked(self, method: str, params: dict[str, Any]) -> Any:
        from pytest_dsocr.records.packing import pack
        from pytest_dsocr.reference.protocol import unpack_case

        assert self._runtime, "load is the first request"
        if "case" in params:
            params["case"] = unpack_case(params["case"])
        found = getattr(self._runtime, method)(**params)
        return (*pack(found), found.provenance.to_json()) if method == "observe" else found

    def _progress(self, what: str, done: int, total: int | None) -> None:
        limit(self._limit_s)
        self._channel.send("event", (what, done, total))


def _import_code(vendor: Path) -> None:
    check_code(vendor)
    from pytest_dsocr.reference.vendor_code.code import load_vendor_code

    load_vendor_code(vendor)


def _versions() -> dict[str, str]:
    from pytest_dsocr.records.provenance import versions

    return versions()


def check_code(vendor: Path) -> None:
    """Raise ``DsocrError`` if files are missing, or need another version of transformers than is installed."""
    from pytest_dsocr.reference.anchors import modules_of
    from pytest_dsocr.reference.environment import SERIES, check_vendor_folder

    check_vendor_folder(vendor)
    found = _versions().get("transformers", "none")
    if "transformers" in modules_of(vendor) and not found.startswith(f"{SERIES}."):
        raise DsocrError(
            f"the code in {vendor} needs transformers {SERIES}, and the worker's environment has {found}; "
            f"create one with `dsocr vendor setup {vendor}`"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
