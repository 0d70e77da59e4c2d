"""The subject's process: it loads the subject, and answers the run's requests until the run is gone."""

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from itertools import count
from typing import Any

from pytest_dsocr.base.errors import DsocrError, has_ended_cuda, is_of_machine, traced
from pytest_dsocr.base.process import end_with_parent
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.config import NotOfferedError, SubjectFaultError
from pytest_dsocr.subjects.calls import LOAD, at_stage, begin, brief, current
from pytest_dsocr.subjects.isolation.messages import REFUSAL, Channel
from pytest_dsocr.subjects.isolation.transport import serve
from pytest_dsocr.subjects.loading import BY_ENGINE, ENGINES, adapter_of, close_subject, load_subject
from pytest_dsocr.subjects.protocol import METHODS, Setup

OPTIONAL = ("announce", "read_many", "text_of", "write")
SET_LATER = ("first_token_ms", "ended_by", "not_offered")
"""Attributes that have a value when a method has returned."""
ENGINE_MODULES = frozenset(family.model.partition(":")[0] for family in MODELS.values())
"""Modules that are imported when an engine makes its model."""

SubjectRequest = Mapping[str, Any]


def main(pipe: int) -> None:
    """Answer what comes over the file descriptor ``pipe`` until it closes, each request within its limit."""
    end_with_parent()  # one that holds the interpreter's lock does not listen
    serve(pipe, lambda channel: SubjectServer(channel).answer)


LISTS = ("presets", "prompts", "dtypes", "not_offered")


class SubjectServer:
    """Server of the subject's process: a request names the method that answers it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._notes: list[str] = []
        self._subject: Any = None
        self._states: dict[int, tuple[Any, dict[str, Any]]] = {}
        """States by number, each with the tensors that ``prefill`` received."""
        self._hooks: dict[int, Any] = {}
        self._ids = count(1)
        self._is_asked = False
        self._is_ours = True
        self._devices: dict[str, Any] = {}
        begin(self._notes)

    def answer(self, request: SubjectRequest) -> None:
        """Do what is asked and send the result."""
        self._is_asked = True
        for state in request["dropped"]:
            self._states.pop(state, None)
        for hook in self._hooks.keys() - {*request["hooks"]}:
            self._hooks.pop(hook).remove()
        try:
            kind, value = "answer", getattr(self, f"_on_{request['what']}")(**request["how"])
        except DsocrError as error:
            kind, value = REFUSAL, _refusal(error)
        self._is_asked = False
        if not self._is_ours and not ENGINE_MODULES.isdisjoint(sys.modules):
            current().note(BY_ENGINE)
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()
        try:
            self._channel.send(kind, {"value": value, "notes": self._notes})
        except (TypeError, ValueError, RuntimeError) as error:
            refusal = _refusal(_unsent(request["stage"], error))
            self._channel.send(REFUSAL, {"value": refusal, "notes": self._notes})

    def _on_load(self, spec: str, setup: Mapping[str, str], folder: str, threads: int | None) -> dict[str, Any]:
        os.chdir(folder)
        if threads:
            import torch

            torch.set_num_threads(threads)
        self._subject = load_subject(spec, Setup(**setup))
        self._is_ours = spec.startswith("pytest_dsocr.") or adapter_of(spec) is not None or spec in ENGINES
        with at_stage(LOAD, "factory"):
            return self._offered()

    def _offered(self) -> dict[str, Any]:
        names = [*(name for level in METHODS.values() for name in level), *OPTIONAL]
        policy = getattr(self._subject, "policy", None)
        words = {name: getattr(self._subject, name, None) for name in ("dtype", "precision")}
        attributes = {
            "policy": policy
            and {one.name: getattr(policy, one.name) for one in fields(DecodePolicy) if hasattr(policy, one.name)},
            **{name: word and str(word) for name, word in words.items()},
            "seams": [*getattr(self._subject, "seams", ())],
            **{name: [*(getattr(self._subject, name, None) or ())] for name in LISTS},
        }
        return {
            "methods": [name for name in names if callable(getattr(self._subject, name, None))],
            "attributes": {name: value for name, value in attributes.items() if value},
        }

    def _on_call(self, stage: str, method: str, given: Any, named: Mapping[str, Any]) -> Any:
        with at_stage(stage, method):
            value = getattr(self._subject, method)(*map(self._placed, given), **named)
            items = value.items() if isinstance(value, Mapping) else ()
            self._devices |= {name: item.device for name, item in items if hasattr(item, "device")}
            now = {name: getattr(self._subject, name) for name in SET_LATER if hasattr(self._subject, name)}
            if "not_offered" in now:
                now["not_offered"] = [*now["not_offered"]]
            return {"value": value, "attributes": now}

    def _on_prefill(self, inputs: Mapping[str, Any], vision_fusion: Any) -> dict[str, Any]:
        with at_stage("prefill", "prefill"):
            given = self._placed({**inputs, **({} if vision_fusion is None else {"vision_fusion": vision_fusion})})
            own = {name: given[name] for name in inputs}
            state, number = self._subject.prefill(own, given.get("vision_fusion")), next(self._ids)
            self._states[number] = state, given
            chosen = [*getattr(state, "chosen", ())]
            return {"state": number, "logits": getattr(state, "logits", None), "chosen": chosen}

    def _on_step(self, state: int, token: int, changed: Mapping[str, Any]) -> Any:
        kept, given = self._states[state]
        for name, tensor in changed.items():
            given[name].data.copy_(tensor)
        with at_stage("decode", "step"):
            return self._subject.step(kept, token)

    def _on_state(self, state: int, path: str, given: Any) -> Any:
        with at_stage("decode", path):
            value: Any = self._states[state][0]
            for name in path.split("."):
                value = getattr(value, name, None)
            return value(*given) if given else value

    def _on_module(self, name: str) -> bool:
        """Return whether there is a module of that name."""
        with at_stage("vision", "module"):
            try:
                self._subject.module(name)
            except AttributeError:
                return False
            return True

    def _on_hook(self, name: str, kind: str, hook: int, *, takes_input: bool) -> None:
        with at_stage("vision", "module"):
            register = getattr(self._subject.module(name), f"register_{kind}")
            self._hooks[hook] = register(partial(self._called, hook, takes_input))

    def _on_close(self) -> None:
        close_subject(self._subject)

    def _called(self, hook: int, takes_input: bool, _module: Any, given: Any, output: Any = None) -> None:
        if self._is_asked and threading.current_thread() is threading.main_thread():
            self._channel.send("event", {"hook": hook, "given": given[:1] if takes_input else (), "output": output})

    def _placed(self, given: Any) -> Any:
        """Put tensors of a mapping where those of their names come from."""
        if not isinstance(given, Mapping):
            return given
        return {
            name: value.to(self._devices[name]) if name in self._devices else value for name, value in given.items()
        }


def _refusal(error: DsocrError) -> dict[str, Any]:
    cause = error.__cause__
    return {
        "stage": getattr(error, "stage", None),
        "message": str(error),
        "trace": traced(cause) if cause else "",
        "is_not_implemented": isinstance(cause, NotImplementedError),
        "is_of_machine": is_of_machine(error),
        "is_not_offered": isinstance(error, NotOfferedError),
        "has_ended_cuda": has_ended_cuda(error),
    }


def _unsent(stage: str, error: Exception) -> SubjectFaultError:
    fault = SubjectFaultError(stage, f"the subject's tensors cannot be taken from its device ({brief(error)})")
    fault.__cause__ = error
    return fault
