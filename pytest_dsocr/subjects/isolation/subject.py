"""A subject in a process of its own, with the methods that it has there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.subjects.fault import hung
from pytest_dsocr.subjects.isolation.modules import Hook, HookHandle, IsolatedModule
from pytest_dsocr.subjects.isolation.process import ProcessLostError, SubjectProcess
from pytest_dsocr.subjects.isolation.raised import LostError, raised
from pytest_dsocr.subjects.isolation.state import IsolatedState
from pytest_dsocr.subjects.isolation.wire import REFUSAL
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.watch import current

if TYPE_CHECKING:
    from torch import Tensor

STAGES: Mapping[str, str] = {
    "read": "read",
    "read_many": "read",
    "inputs": "tokenizer",
    "vision": "vision",
    "text_of": "postprocess",
    "write": "postprocess",
}
"""Of each method that is called as it is."""


class IsolatedSubject:
    """Fulfils the protocol that the subject fulfils. Tensors are given on the CPU.

    Where its process ends, the call that it was at fails, and the next one starts another. Hooks see what modules give,
    and cannot change it.

    Args:
        spec: the subject, as ``load_subject`` takes it.
        setup: what it is made for.
        limit_s: seconds for one call.

    Raises:
        DsocrError: where it cannot be loaded.
    """

    def __init__(self, spec: str, setup: Setup, limit_s: float) -> None:
        self._spec, self._setup, self.limit_s = spec, setup, limit_s
        self._hooks: dict[int, Hook] = {}
        self._hook_numbers = count(1)
        self._devices: dict[str, str] = {}
        self._process: SubjectProcess | None = None
        self._offered: Mapping[str, Any] = {}
        try:
            self._loaded()
        except LostError as lost:
            raise DsocrError(f"{spec} could not make its subject: {lost.told}; see what it said last") from lost.cause

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
        """Its process, while there is one."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """Let the subject close, and end its process."""
        if self._process:
            try:
                self.ask("close", "close", "close")
            finally:
                if self._process:
                    self._process.close()
                self._process = None

    def ask(self, stage: str, method: str, what: str, /, of: SubjectProcess | None = None, **how: Any) -> Any:
        """Have a request answered.

        Args:
            stage: that a fault names.
            method: that a fault names.
            what: the request.
            of: the process that has to answer it; any, if left out.
            **how: its arguments.

        Raises:
            SubjectFaultError: where the subject raises there, its process ends, or it has ended before.
        """
        try:
            if of is not None and of is not self._process:
                raise SubjectFaultError(stage, f"the subject's process ended before {method}, which goes on from it")
            return self._request(of or self._loaded(), stage, what, how)
        except LostError as lost:
            ending = "hung and was ended" if lost.is_hung else lost.how
            current().note(f"the subject's process {ending} in {stage}; another is started for what comes after")
            if lost.is_hung:
                raise hung(stage, method, self.limit_s) from lost.cause
            raise SubjectFaultError(
                stage, f"the subject's process ended in {stage}, under {method}: {lost.told}; see what it said last"
            ) from lost.cause

    def _loaded(self) -> SubjectProcess:
        if self._process is None:
            process = self._process = SubjectProcess()
            torch = sys.modules.get("torch")
            threads = torch.get_num_threads() if torch else None
            how = {"spec": self._spec, "setup": asdict(self._setup), "folder": os.getcwd(), "threads": threads}  # noqa: PTH109
            try:
                self._offered = self._request(process, "load", "load", how)
            except DsocrError:
                self._drop()
                raise
        return self._process

    def _request(self, process: SubjectProcess, stage: str, what: str, how: Mapping[str, Any]) -> Any:
        broken: list[BaseException] = []
        dropped, process.dropped = process.dropped, []
        request = {"what": what, "stage": stage, "how": how, "devices": self._devices, "dropped": dropped}
        try:
            with current().unlimited():
                kind, said = process.ask(request, self.limit_s, lambda event: self._on_event(event, broken))
        except ProcessLostError as lost:
            self._drop()
            raise LostError(lost, self.limit_s) from lost
        except BaseException:  # it is busy with a request that nobody waits for
            self._drop()
            raise
        sys.stderr.write(process.take_output())
        for note in said["notes"]:
            current().note(note)
        if kind == REFUSAL:
            raise raised(said["value"])
        if broken:
            raise broken[0]
        return said["value"]

    def _on_event(self, event: Mapping[str, Any], broken: list[BaseException]) -> None:
        """Call a hook; the first that raises is reported when the request is over, as the process is still busy."""
        hook = self._hooks.get(event["hook"])
        if hook and not broken:
            try:
                hook(None, (), event["output"])
            except Exception as error:
                broken.append(error)

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process:
            process.kill()

    def _call(self, method: str, *given: Any, **named: Any) -> Any:
        told = self.ask(STAGES[method], method, "call", stage=STAGES[method], method=method, given=given, named=named)
        self._devices.update(told["devices"])
        return told["value"]

    def _prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> IsolatedState:
        told = self.ask("prefill", "prefill", "prefill", inputs={**inputs}, vision_fusion=vision_fusion)
        assert self._process
        given = {**inputs, **({} if vision_fusion is None else {"vision_fusion": vision_fusion})}
        return IsolatedState(self, self._process, told["state"], told["logits"], given)

    def _step(self, state: IsolatedState, token: int) -> Tensor:
        logits: Tensor = state.ask("step", "step", token=token, changed=state.changed())
        state.logits = logits
        return logits

    def _module(self, name: str) -> IsolatedModule:
        if not self.ask("vision", "module", "module", name=name):
            raise AttributeError(f"the subject has no module {name}")
        return IsolatedModule(self, name)

    def hook(self, name: str, kind: str, hook: Hook) -> HookHandle:
        """Have ``hook`` called when a module is."""
        number = next(self._hook_numbers)
        self._hooks[number] = hook
        self.ask("vision", "module", "hook", name=name, kind=kind, hook=number)
        return HookHandle(self, self._process, number)

    def unhook(self, number: int, of: SubjectProcess | None) -> None:
        """Stop calling a hook."""
        del self._hooks[number]
        if of is self._process and of is not None:
            self.ask("vision", "module", "unhook", of=of, hook=number)
