"""Lines of a side's own code: stages named as they run, and the place of each operator."""

import linecache
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_dsocr.timing.probe.stopwatch import Stopwatch
from pytest_dsocr.timing.traced import DOMAIN, PAGE, SourceLine

BEFORE = "dsocr "
"""Prefix of a range's name, which distinguishes our ranges from the subject's."""
HERE, MEASURING = str(Path(__file__).parents[1]), "pytest_dsocr/timing/"
"""Paths of the measuring code: here, and in the measured version of the package."""
INSTALLED = "site-packages"


class Own:
    """A side's own code: its checked-out tree, and the packages of both subjects.

    Args:
        trees: folders; what is installed in them is not their own.
        packages: top-level modules.
    """

    def __init__(self, trees: Collection[str], packages: Collection[str]) -> None:
        self._roots = [(tree, tree) for tree in trees]
        for name in packages:
            spec = find_spec(name)
            for found in [*(spec.submodule_search_locations or [spec.origin or ""])] if spec else []:
                self._roots.append((found, str(Path(found).parent)))
        self._files: dict[CodeType, str] = {}

    def file(self, code: CodeType) -> str:
        """Return the file of own code, relative to its root; empty for other code."""
        if code not in self._files:
            self._files[code] = self._relative(code.co_filename)
        return self._files[code]

    def path(self, frame: FrameType | None) -> tuple[SourceLine, ...]:
        """Return the places in own code that lead to a frame from what measures, the innermost last."""
        found: list[SourceLine] = []
        while frame is not None and not (found and frame.f_code.co_filename.startswith(HERE)):
            if self.file(frame.f_code):
                found.append(self.place(frame))
            frame = frame.f_back
        return tuple(found[::-1])

    def innermost(self, frame: FrameType | None) -> SourceLine | None:
        """Return the innermost place in own code."""
        while frame is not None and not self.file(frame.f_code):
            frame = frame.f_back
        return frame and self.place(frame)

    def place(self, frame: FrameType) -> SourceLine:
        """Return the place of a frame of own code."""
        code, line = frame.f_code, frame.f_lineno
        return SourceLine(self.file(code), code.co_name, line, linecache.getline(code.co_filename, line).strip())

    def _relative(self, file: str) -> str:
        base = next((base for root, base in self._roots if Path(file).is_relative_to(root)), None)
        inside = "" if base is None else str(Path(file).relative_to(base))
        return "" if INSTALLED in inside or inside.startswith(MEASURING) or file.startswith(HERE) else inside


class Marks(Stopwatch):
    """Names stages for the profiler, each with its number, and knows which are open; one within itself is one."""

    def __init__(self, own: Own) -> None:
        super().__init__("cpu")
        self.own = own
        self.open: list[str] = []
        self.paths: dict[str, tuple[SourceLine, ...]] = {}
        """By run of a stage, the places in own code that lead to it."""
        self._runs: Counter[str] = Counter()
        self.finish: Callable[[], None] = lambda: None
        """Ends the stage that lasts until the next."""

    def start(self, name: str) -> Callable[[], None]:
        """Open a range named ``decode 7``, or ``page/decode 7`` while a page is read whole; return what ends it."""
        stages = [stage_of(one) for one in self.open]
        stage = f"{PAGE}/{name}" if PAGE in stages else name
        if stage in stages:
            return lambda: None
        run = f"{stage} {self._runs[stage]}"
        self._runs[stage] += 1
        self.paths[run] = self.own.path(sys._getframe(1))
        opened = record_function(BEFORE + run)
        opened.__enter__()
        self.open.append(run)

        def stop() -> None:
            self.open.remove(run)
            opened.__exit__(None, None, None)

        return stop

    @contextmanager
    def nvtx(self) -> Iterator[None]:
        """Treat NVTX ranges of domain ``dsocr`` as stages, whoever opens them."""
        try:
            import nvtx
        except ImportError:
            yield
            return
        push, pop, ends = nvtx.push_range, nvtx.pop_range, list[Callable[[], None]]()

        def pushed(message: Any = None, *rest: Any, domain: Any = None, **more: Any) -> Any:
            if domain == DOMAIN:
                is_within = ends or self.open[:1] != [f"{PAGE} 0"]
                ends.append(self.start(str(message)) if is_within else self._next(str(message)))
            return push(message, *rest, domain=domain, **more)

        def popped(domain: Any = None) -> Any:
            if domain == DOMAIN and ends:
                ends.pop()()
            return pop(domain=domain)

        nvtx.push_range, nvtx.pop_range = pushed, popped
        try:
            yield
        finally:
            nvtx.push_range, nvtx.pop_range = push, pop

    def _next(self, name: str) -> Callable[[], None]:
        """Open a stage that lasts until the next, since what follows a step belongs to it; return a no-op."""
        self.finish()
        self.finish = self.start(name)
        return lambda: None


def stage_of(run: str) -> str:
    """Return the stage of ``decode 7``."""
    return run.rpartition(" ")[0]


class Lines(TorchDispatchMode):
    """Notes the line that calls each operator, and which lines of own code run; not timed, since it slows both down."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.marks, self.own = marks, marks.own
        self.calls: dict[tuple[str, str], list[SourceLine | None]] = defaultdict(list)
        """By run of a stage and operator, the places that call it, in order."""
        self.ran: Counter[tuple[str, SourceLine]] = Counter()
        """Number of times that each line ran, by run of a stage and place."""
        self.ns: Counter[tuple[str, SourceLine]] = Counter()
        """Nanoseconds until the next line, by run of a stage and place."""
        self._at: tuple[str, SourceLine] | None = None
        self._since_ns = 0

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note the lines that run within; a debugger or coverage tool does not see them."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            with self:
                yield
        finally:
            sys.settrace(before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[self._run, func._schema.name].append(self.own.innermost(sys._getframe(1)))
        return func(*args, **(kwargs or {}))

    @property
    def _run(self) -> str:
        return self.marks.open[-1] if self.marks.open else ""

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self.own.file(frame.f_code):
            return None
        now_ns = time.perf_counter_ns()
        if self._at:
            self.ns[self._at] += now_ns - self._since_ns
        self._at = (self._run, self.own.place(frame)) if event == "line" else None
        if self._at:
            self.ran[self._at] += 1
        self._since_ns = time.perf_counter_ns()
        return self._trace
