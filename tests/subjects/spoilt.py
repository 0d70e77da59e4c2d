"""An engine that is wrong on request: methods are missing, one raises, or buffers are used again."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.records.config import Level
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.protocol import METHODS


def only(subject: EngineSubject, level: Level, *more: str) -> Any:
    """Return the subject with the methods of a level and ``more``, without its other members."""
    names = [*(name for one in Level if one <= level for name in METHODS[one]), *more]
    return SimpleNamespace(**{name: getattr(subject, name) for name in names})


class Raising(EngineSubject):
    """Raises in one method, ``step`` only in its fourth call."""

    def __init__(self, engine: Engine[Any], method: str) -> None:
        super().__init__(engine)
        self.error = RuntimeError(f"no kernel for {method}")
        self.calls = 0
        setattr(self, method, self._raise if method != "step" else self._raise_late)

    def _raise(self, *given: Any, **how: Any) -> Any:
        raise self.error

    def _raise_late(self, state: Any, token: int) -> Tensor:
        self.calls += 1
        if self.calls == 4:
            raise self.error
        return super().step(state, token)


class Reusing(EngineSubject):
    """Returns its tensors in buffers that it reuses at the next call, as CUDA graphs do; overwrites its arguments."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine)
        self._buffers: list[Tensor] = []

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        return self._in_buffers(super().inputs(page, prompt=prompt, preset=preset))

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._in_buffers(super().vision(self._taken(inputs)))

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        fused = None if vision_fusion is None else self._taken({"": vision_fusion})[""]
        state = super().prefill(self._taken(inputs), fused)
        state.logits = self._in_buffers({"": state.logits})[""]
        return state

    def step(self, state: Any, token: int) -> Tensor:
        return self._in_buffers({"": super().step(state, token)})[""]

    def _in_buffers(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for buffer in self._buffers:
            buffer.zero_()
        own = {name: tensor.clone() for name, tensor in given.items()}
        self._buffers = [*own.values()]
        return own

    def _taken(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        own = {name: tensor.clone() for name, tensor in given.items()}
        for tensor in given.values():
            tensor.zero_()
        return own
