"""Table of what one traced page ran; a light module, since it is loaded with any version of the measured package."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

RUN, OPERATOR, KERNEL, WAIT, PYTHON = "run", "operator", "kernel", "wait", "python"
DOMAIN = "dsocr"
"""Domain of the NVTX ranges that are stages, whoever opens them."""
PAGE = "page"
"""Name of a page that is read whole; stages within it are ``page/decode``."""
READS = frozenset(("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique_consecutive", "_unique2"))
"""Operators that make the host wait for their result or its size."""


class SourceLine(NamedTuple):
    """A line of a side's own code; its text stays the same where lines before it are added."""

    file: str
    """Relative to the checked-out tree, or to the folder that the package is imported from."""
    function: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class TraceRow:
    """Calls of one operation in one stage at one place."""

    stage: str
    kind: str
    """:data:`RUN` of an inner stage, :data:`OPERATOR`, :data:`KERNEL`, :data:`WAIT` or (a function) :data:`PYTHON`."""
    name: str
    path: tuple[SourceLine, ...]
    """Places in own code that lead to a run, the innermost last; for other kinds only the innermost."""
    count: int
    """Number of calls over all runs of the stage; for Python, of lines that ran."""
    host_ms: float = 0.0
    """Milliseconds in each run of the stage; for Python, those in which no operator was at work."""
    device_ms: float = 0.0
    growth: int = 0
    """Increase of the count from each run of the stage to the next."""


@dataclass(frozen=True)
class TraceTable:
    """Contents of one traced page: the number of runs of each stage, and the operations in it."""

    runs: Mapping[str, int]
    rows: Sequence[TraceRow]

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str, str], list[TraceRow]]:
        """The rows by stage, kind and name."""
        found: dict[tuple[str, str, str], list[TraceRow]] = defaultdict(list)
        for row in self.rows:
            found[row.stage, row.kind, row.name].append(row)
        return found

    @cached_property
    def stage_ms(self) -> Mapping[str, float]:
        """The milliseconds of a run of each stage, of the host or of the device; without what disturbed it."""
        parts = {stage: [row for row in self.rows if row.stage == stage and row.kind != RUN] for stage in self.runs}
        return {stage: max(sum(r.host_ms for r in of), sum(r.device_ms for r in of)) for stage, of in parts.items()}
