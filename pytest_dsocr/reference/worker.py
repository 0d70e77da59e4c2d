"""The worker: a process of the vendor's environment that loads a checkpoint once and answers requests.

Where the session stands in for the vendor's code, it is a process of the caller's own environment. Its client, in
:mod:`pytest_dsocr.reference.live`, starts it. Only what an environment without torch can import is imported before it
was asked to load.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.provenance import versions
from pytest_dsocr.reference.environment import PINS, check_vendor_folder
from pytest_dsocr.reference.inspection import modules_of
from pytest_dsocr.subjects.isolation.transport import REFUSAL, Channel, limit, serve

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.reference.protocol import Runtime

Reply = tuple[Any, Mapping[str, "Tensor"]]
"""A result as JSON, and the tensors that go with it."""


def main(folder: str, pipe: str) -> None:
    """Answer what comes over the file descriptor ``pipe``; ``folder`` is its temporary files', and goes with it."""
    serve(int(pipe), lambda channel: RuntimeServer(channel).answer, lambda: shutil.rmtree(folder, ignore_errors=True))


class RuntimeServer:
    """Where requests are answered."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._limit_s = 0.0
        self._runtime: Runtime | None = None
        self._provenance: Mapping[str, Any] = {}

    def answer(self, request: Mapping[str, Any]) -> None:
        """Do what is asked and send the answer, whatever exception it ends in."""
        self._limit_s = request["limit_s"]
        try:
            method: Callable[..., Reply] = getattr(self, f"_on_{request['method']}")
            result, tensors = method(**json.loads(request["params"]))
            answer = {"result": json.dumps(result), "tensors": tensors, "provenance": self._provenance}
            self._channel.send("answer", answer)
        except DsocrError as error:
            self._channel.send(REFUSAL, {"kind": type(error).__name__, "message": str(error), "traceback": ""})
        except (Exception, SystemExit) as error:
            told = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            self._channel.send(REFUSAL, told)

    @property
    def _loaded(self) -> Runtime:
        assert self._runtime, "load comes first"
        self._provenance = self._runtime.provenance.to_json()
        return self._runtime

    def _on_versions(self) -> Reply:
        return versions(), {}

    def _on_load(self, runtime: str, vendor: str | None, **how: Any) -> Reply:
        self._runtime = self._loader(runtime, vendor)(**how, on_progress=self._progress)
        if how["device"].startswith("cuda:"):
            import torch

            torch.cuda.set_device(how["device"])  # where infer's own .cuda() puts its inputs
        self._provenance = self._runtime.provenance.to_json()
        return {}, {}

    def _loader(self, runtime: str, vendor: str | None) -> Callable[..., Runtime]:
        """Return what loads the class ``module:name``, of the vendor's files where there are some."""
        if vendor is not None:
            check_vendor_folder(Path(vendor))
            check_versions(Path(vendor))
        module, _, name = runtime.partition(":")
        load: Callable[..., Runtime] = getattr(import_module(module), name).load
        return load if vendor is None else partial(load, Path(vendor))

    def _on_inputs(self, case: Mapping[str, Any], keep_values: bool) -> Reply:
        from pytest_dsocr.observation.packing import pack_inputs
        from pytest_dsocr.reference.protocol import unpack_case

        return pack_inputs(self._loaded.inputs(unpack_case(case), keep_values=keep_values))

    def _on_observe(self, case: Mapping[str, Any], out: str | None, **how: Any) -> Reply:
        from pytest_dsocr.observation.packing import pack
        from pytest_dsocr.reference.protocol import unpack_case

        observation = self._loaded.observe(unpack_case(case), out=out and Path(out), **how)  # type: ignore[arg-type]
        assert observation.provenance, "a runtime says how it was made"
        self._provenance = observation.provenance.to_json()
        return pack(observation)

    def _on_stage_times(self, case: Mapping[str, Any], turns: int) -> Reply:
        from pytest_dsocr.reference.protocol import unpack_case

        return self._loaded.stage_times(unpack_case(case), turns), {}

    def _on_flops(self, case: Mapping[str, Any]) -> Reply:
        from pytest_dsocr.reference.protocol import unpack_case

        return self._loaded.flops(unpack_case(case)), {}

    def _on_explain(self, question: Mapping[str, Any]) -> Reply:
        from pytest_dsocr.reference.protocol import Explaining

        assert isinstance(self._loaded, Explaining), "the vendor's code explains nothing"
        return self._loaded.explain(question), {}

    def _progress(self, what: str, done: int, total: int | None) -> None:
        limit(self._limit_s)
        self._channel.send("event", (what, done, total))


def check_versions(vendor: Path) -> None:
    """Raise ``DsocrError`` where the folder's code uses transformers, and another version of it is here."""
    [pin] = (pin for pin in PINS if pin.startswith("transformers=="))
    found, needed = versions().get("transformers", "none"), pin.split("==")[1].rpartition(".")[0]
    if "transformers" in modules_of(vendor) and not found.startswith(f"{needed}."):
        raise DsocrError(
            f"the code in {vendor} needs transformers {needed}, and the worker's environment has {found}; "
            f"make one with `dsocr vendor setup {vendor}`"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
