"""Counted FLOPs against computed ones: in which modules they differ, and by which operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_dsocr.cost.cost import Cost
from pytest_dsocr.foundation.words import count, listed

WHOLE = ""
"""The name of all that was counted, which every module lies in."""
OUTSIDE = "in no module that is shown"


@dataclass(frozen=True)
class Difference:
    """One module whose own FLOPs, without those of counted modules inside it, are not as computed."""

    module: str
    expected: int
    operators: Mapping[str, int]
    """What was counted, by operator."""
    calls: int
    parts: tuple[str, ...]
    """Modules that should have computed here and were not seen, where any are."""

    @property
    def found(self) -> int:
        """What was counted."""
        return sum(self.operators.values())

    def __str__(self) -> str:
        called = f" in {count(self.calls, 'call')}" if self.calls else ""
        by = [f"{name.partition('::')[2]} {flops:,}" for name, flops in self.operators.items() if flops]
        said = [
            f"{self.module or OUTSIDE}{called}: {self.found:,}, expected {self.expected:,}{self._times()}",
            *([f"by {', '.join(by)}"] if by else []),
            *([f"not seen: {listed(self.parts, 3)}"] if self.parts else []),
        ]
        return "; ".join(said)

    def _times(self) -> str:
        return f", {self.found / self.expected:.4g} times as much" if self.expected and self.found else ""


def differences(
    expected: Mapping[str, Cost], modules: Mapping[str, Mapping[str, int]], calls: Mapping[str, int]
) -> list[Difference]:
    """Compare each module's own FLOPs, in the order of ``expected``.

    Args:
        expected: computed, by module.
        modules: counted in each module and all that it calls, by operator; :data:`WHOLE` is all.
        calls: how often each module ran.
    """
    of_module = _own(expected, modules)
    own = {name: Counter(modules[name]) for name in modules}
    for name in modules:
        if name != WHOLE:
            own[_nearest(name.rpartition(".")[0], modules)].subtract(modules[name])
    found = []
    for name, parts in of_module.items():
        flops = sum(expected[part].matrix_flops for part in parts)
        if flops != own[name].total():
            absent = tuple(part for part in parts if calls and part != name and expected[part].matrix_flops)
            found.append(Difference(name, flops, own[name], calls.get(name, 0), absent))
    return found


def with_those_around(names: Iterable[str]) -> set[str]:
    """Return the names of modules, and of all modules that they lie in."""
    parts = [name.split(".") for name in names]
    return {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}


def _own(expected: Mapping[str, Cost], modules: Mapping[str, object]) -> dict[str, list[str]]:
    """Return each counted module with what was computed for it and no counted module inside it."""
    found: dict[str, list[str]] = {}
    for name in expected:
        found.setdefault(_nearest(name, modules), []).append(name)
    return found | {name: [] for name in modules if name not in found}


def _nearest(name: str, modules: Mapping[str, object]) -> str:
    """Return the innermost counted module that ``name`` is or lies in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
