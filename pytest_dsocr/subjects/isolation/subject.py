"""A subject in a process of its own, with the methods, modules and cache that it has there."""

from __future__ import annotations

import json
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.records.config import START_LIMIT_S, SubjectFaultError
from pytest_dsocr.subjects.calls import LOAD, current, hung
from pytest_dsocr.subjects.isolation.errors import how_lost, last_output, raised
from pytest_dsocr.subjects.isolation.handles import Hook, IsolatedModule, IsolatedState
from pytest_dsocr.subjects.isolation.messages import REFUSAL
from pytest_dsocr.subjects.isolation.transport import ChildProcess, ProcessLostError
from pytest_dsocr.subjects.protocol import Setup

if TYPE_CHECKING:
    from torch import Tensor


BOOT = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pytest_dsocr.subjects.isolation.child import main
main(int(sys.argv[2]))"""
OF_RUN = ("PYTEST_", "DSOCR_GOLDEN", "DSOCR_KEPT_ANSWERS", "DSOCR_OUT", "DSOCR_REFERENCE", "DSOCR_RUN_ID")
"""Beginnings of the names of variables that are none of the subject's business."""
STAGES: Mapping[str, str] = {
    "read": "read",
    "read_many": "read",
    "announce": "tokenizer",
    "inputs": "tokenizer",
    "vision": "vision",
    "text_of": "postprocess",
    "write": "postprocess",
}
"""Stages of the methods that are forwarded unchanged."""


ANOTHER = "another is started for what comes after"


class IsolatedSubject:
    """Fulfils the protocol that the subject fulfils. Tensors are given on the CPU.

    Where its process ends, the call that it was at fails, and the next one starts another. Hooks see what modules give,
    and cannot change it.

    Args:
        spec: the subject, as ``load_subject`` takes it.
        setup: what it is made for.
        limit_s: seconds for one call.
        start_limit_s: seconds for starting a process and loading the subject there.

    Raises:
        DsocrError: where it cannot be loaded.
    """

    def __init__(self, spec: str, setup: Setup, limit_s: float, start_limit_s: float = START_LIMIT_S) -> None:
        self._spec, self._setup, self.limit_s, self.start_limit_s = spec, setup, limit_s, start_limit_s
        self.hooks: OrderedDict[int, Hook] = OrderedDict()
        self.process: ChildProcess | None = None
        self._offered: Mapping[str, Any] = {}
        try:
            self._loaded()
        except ProcessLostError as lost:
            why = f"{spec} could not make its subject: {how_lost(lost)}; see what it said last"
            raise DsocrError(why) from last_output(lost)

    def __getattr__(self, name: str) -> Any:
        offered = self.__dict__.get("_offered", {})
        if name in offered.get("methods", ()):
            own: Mapping[str, Any] = {"prefill": self._prefill, "step": self._step, "module": self._module}
            return own.get(name) or partial(self._call, name)
        if name in offered.get("attributes", {}):
            value = offered["attributes"][name]
            return DecodePolicy(**value) if name == "policy" else value
        raise AttributeError(f"the subject has no {name}")

    @property
    def pid(self) -> int | None:
        """Id of the subject's process, if one is running."""
        return self.process.pid if self.process else None

    def close(self) -> None:
        """Close the subject, and end its process."""
        if self.process:
            try:
                self.ask("close", "close", "close")
            finally:
                if self.process:
                    self.process.close()
                self.process = None

    def ask(self, stage: str, method: str, what: str, /, of: ChildProcess | None = None, **how: Any) -> Any:
        """Send a request and return its answer.

        Args:
            stage: that a fault names.
            method: that a fault names.
            what: the request.
            of: the process that has to answer it; any, if left out.
            **how: its arguments.

        Raises:
            SubjectFaultError: where the subject raises there, its process ends, or it has ended before.
        """
        is_start = self.process is None
        try:
            if of is not None and of is not self.process:
                raise SubjectFaultError(stage, f"the subject's process ended before {method}, which goes on from it")
            return self._request(of or self._loaded(), stage, what, how, self.limit_s)
        except ProcessLostError as lost:
            ending = "hung and was ended" if lost.is_hung else lost.how
            current().note(f"the subject's process {ending} in {stage}; {ANOTHER}")
            if lost.is_hung:
                raise hung(stage, method, lost.limit_s, is_start=is_start) from last_output(lost)
            message = f"the subject's process ended in {stage}, under {method}: it {lost.how}"
            raise SubjectFaultError(stage, f"{message}; see what it said last") from last_output(lost)

    def _loaded(self) -> ChildProcess:
        if self.process is None:
            command = [sys.executable, "-c", BOOT, json.dumps(sys.path)]
            environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_RUN)}
            with current().hiding() as hiding:
                process = self.process = ChildProcess(command, environment, first=hiding.enter)
            torch = sys.modules.get("torch")
            threads = torch.get_num_threads() if torch else None
            how = {"spec": self._spec, "setup": asdict(self._setup), "folder": os.getcwd(), "threads": threads}  # noqa: PTH109
            try:
                self._offered = self._request(process, LOAD, "load", how, self.start_limit_s)
            except DsocrError:
                self._drop()
                raise
        return self.process

    def _request(self, process: ChildProcess, stage: str, what: str, how: Mapping[str, Any], limit_s: float) -> Any:
        broken: list[BaseException] = []
        dropped, process.dropped = process.dropped, []
        request = {"what": what, "stage": stage, "how": how, "hooks": [*self.hooks], "dropped": dropped}
        try:
            with current().unlimited():
                kind, said = process.ask(request, limit_s, lambda event: self._on_event(event, broken))
        except BaseException:  # it is lost, or busy with a request that nobody waits for
            self._drop()
            raise
        sys.stderr.write(process.take_output())
        for note in said["notes"]:
            current().note(note)
        if kind == REFUSAL:
            if said["value"]["has_ended_cuda"]:
                self._drop()
                current().note(f"the subject ended CUDA for its process in {stage}; {ANOTHER}")
            raise raised(said["value"])
        if broken:
            raise broken[0]
        return said["value"]

    def _on_event(self, event: Mapping[str, Any], broken: list[BaseException]) -> None:
        """Call a hook; the first that raises is reported when the request is over, as the process is still busy."""
        hook = self.hooks.get(event["hook"])
        if hook and not broken:
            try:
                hook(None, event["given"], event["output"])
            except Exception as error:
                broken.append(error)

    def _drop(self) -> None:
        process, self.process = self.process, None
        if process:
            process.kill()

    def _call(self, method: str, *given: Any, **named: Any) -> Any:
        stage = STAGES[method]
        answer = self.ask(stage, method, "call", stage=stage, method=method, given=given, named=named)
        self._offered["attributes"].update(answer["attributes"])
        return answer["value"]

    def _prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> IsolatedState:
        answer = self.ask("prefill", "prefill", "prefill", inputs={**inputs}, vision_fusion=vision_fusion)
        assert self.process
        given = {**inputs, **({} if vision_fusion is None else {"vision_fusion": vision_fusion})}
        return IsolatedState(self, self.process, answer["state"], answer["logits"], answer["chosen"], given)

    def _step(self, state: IsolatedState, token: int) -> Tensor:
        logits: Tensor = state.ask("step", "step", token=token, changed=state.changed())
        state.logits = logits
        return logits

    def _module(self, name: str) -> IsolatedModule:
        if not self.ask("vision", "module", "module", name=name):
            raise AttributeError(f"the subject has no module {name}")
        return IsolatedModule(self, name)
