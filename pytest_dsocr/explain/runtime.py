"""Engine of the explaining process, and the memory that it needs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import Answer, Measuring, measured, measuring
from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.model import weights_bytes
from pytest_dsocr.explain.choices import describe_choices
from pytest_dsocr.explain.computed import Seen
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.described import describe_seen
from pytest_dsocr.explain.explain import explain
from pytest_dsocr.explain.question import PageRead, Question, Trail
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.reproducer import write_seen
from pytest_dsocr.explain.stepping import Steps, describe_kept
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.reference.protocol import unpack_case

Packed = Sequence[Any]
"""A tuple in the form that is sent."""

ALLOWANCE = 1.5
"""Memory that an engine takes, relative to its weights."""

MEMORY = Path("/proc/meminfo")

GIB = 2**30


@dataclass(frozen=True)
class ExplainingRuntime(EngineRuntime):
    """Engine of the explaining process."""

    _kept: dict[Case, Clean] = field(default_factory=dict)
    """Right tensors of the last page."""

    @classmethod
    def load(cls, checkpoint: str, *, device: str = "cpu", dtype: str = "float32", **options: Any) -> Self:
        """Load the engine; raise ``DsocrError`` if it does not fit into the free memory."""
        check_memory(checkpoint, device, dtype)
        return super().load(checkpoint, device=device, dtype=dtype, **options)

    def describe(
        self,
        case: Case,
        seen: Mapping[str, Any],
        expected: Mapping[str, Any] | str,
        out: str | None = None,
        earlier: Sequence[Mapping[str, Any]] = (),
        budget_s: float = math.inf,
    ) -> Packed:
        """Describe the subject's tensor; see :func:`~pytest_dsocr.explain.described.describe_seen`.

        If ``out`` names the folder of the run's result, also write a script that shows the difference. ``earlier`` are
        pages that were read before. Describers that take long end after ``budget_s``.
        """
        summary = expected if isinstance(expected, str) else Seam(**expected)
        clean, given = self._clean(case), Seen(**seen)
        before = self._before(earlier)
        found = _answered(lambda: describe_seen(clean, given, summary, case, before), budget_s)
        if out is not None:
            write_seen(Path(out), clean, case, given, summary)
        return found

    def describe_choices(
        self, page: Mapping[str, Any], others: Sequence[Any], is_sure: bool, budget_s: float = math.inf
    ) -> Packed:
        """Describe the choices of a text; see :func:`~pytest_dsocr.explain.choices.describe_choices`."""
        read, before = msgspec.convert(page, PageRead), msgspec.convert(others, list[PageRead])
        return _answered(lambda: describe_choices(self.subject.engine, read, before, is_sure=is_sure), budget_s)

    def describe_cache(
        self,
        case: Case,
        tokens: Sequence[int],
        given: Mapping[str, Tensor],
        kept: Sequence[tuple[Tensor, Tensor]],
        attended: Mapping[int, Tensor],
        gave: Mapping[int, Tensor],
        earlier: Sequence[Mapping[str, Any]] = (),
        budget_s: float = math.inf,
    ) -> Packed:
        """Describe a cache after the prompt and these tokens; see :mod:`pytest_dsocr.explain.stepping`.

        ``given`` are the subject's own inputs of the prefill, which replace the right ones. ``earlier`` are pages read
        before.
        """
        right, inputs = self._clean(case), {**given}
        device = right.engine.model.device
        features = inputs.pop(FUSION) if FUSION in inputs else right.in_prompt
        own = {} if features is None else {(FUSION, ""): features.to(device)}
        clean, before = Clean(right.engine, replace(right.inputs, **inputs).to(device), own), self._before(earlier)
        steps = Steps(attended, gave)
        return _answered(lambda: measured(describe_kept, clean, tokens, kept, steps, before), budget_s)

    def explain(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a packed :class:`~pytest_dsocr.explain.question.Question`."""
        asked = Question.unpack(question)
        with torch.no_grad():
            answer = explain(self.subject.engine, unpack_case(asked.page.case), asked, self._clean)
        packed: dict[str, Any] = msgspec.to_builtins(answer)
        return packed

    def further(self, case: Case, trail: Mapping[str, Any]) -> list[Any]:
        """Search for causes besides the first; see :func:`~pytest_dsocr.explain.further.next_wrong`."""
        from pytest_dsocr.explain.further import next_wrong

        return [*map(msgspec.to_builtins, next_wrong(self._clean(case), case, Trail.unpack(trail)))]

    def _clean(self, case: Case) -> Clean:
        if case not in self._kept:
            self._kept.clear()
            self._kept[case] = self._made(case)
        return self._kept[case]

    def _before(self, earlier: Sequence[Mapping[str, Any]]) -> Mapping[str, Callable[[], Clean]]:
        """Return what makes the right tensors of pages that were read before."""
        return {one.id: partial(self._made, one) for one in map(unpack_case, earlier)}

    def _made(self, case: Case) -> Clean:
        engine = self.subject.engine
        return Clean(engine, engine.prepare(case.page, prompt=case.prompt, preset=case.preset))


def _answered(describe: Callable[[], Iterable[Description]], budget_s: float) -> Packed:
    """Return a packed :class:`~pytest_dsocr.describe.measured.Answer`."""
    deadline = Deadline(budget_s)
    with measuring(Measuring(lambda: deadline.is_over)) as now:
        found = tuple(describe())
    packed: Packed = msgspec.to_builtins(Answer(found, tuple(now.lines)))
    return packed


def check_memory(checkpoint: str, device: str, dtype: str) -> None:
    """Raise ``DsocrError`` if the engine needs more memory than the device has free."""
    needed = ALLOWANCE * weights_bytes(resolve(checkpoint).architecture, dtype_named(dtype))
    free = free_bytes(device_named(device))
    if free is not None and free < needed:
        raise DsocrError(
            f"the engine that explains failures needs {needed / GIB:.1f} GiB, and {free / GIB:.1f} are free on "
            f"{device}; pass a smaller checkpoint, or --dsocr-explain=0"
        )


def free_bytes(device: torch.device) -> int | None:
    """Return the number of free bytes; None if the system does not report it."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
