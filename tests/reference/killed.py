"""Run a recorder over and over, each time killed one step later, until it gets to its end.

    python -m tests.reference.killed SOURCE PAGES SCENARIO...

It records the cases of the recording SOURCE, whose pages are in PAGES. Each run starts from a copy of the recordings in
``SCENARIO/start``, and leaves what it had made in ``SCENARIO/<steps>``; in the scenario ``again`` every case is to be
made anew. A step is anything that changes what others read from the disk: opening a file to write it, writing sixteen
kilobytes of it, renaming, deleting. To wait for the disk changes nothing of that, and so nobody waits.
"""

import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_dsocr.observation.case import Case
from pytest_dsocr.reference.recording import Recording
from tests.reference.replay import Replay, record

CHUNK_BYTES = 16_384
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir")
WRITES = os.O_WRONLY | os.O_RDWR


class Fuse:
    """Kills the process, as ``kill -9`` does, in front of the first step beyond those that it lets pass."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.open: Callable[..., Any] = io.open

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def light(self) -> None:
        sys.addaudithook(self._on_event)
        os.fsync = lambda _: None  # type: ignore[assignment]
        io.open = self._open_in_chunks

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and arguments[2] & WRITES):
            self.step()

    def _open_in_chunks(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode != "wb":
            return self.open(file, mode, *arguments, **options)
        return io.BufferedWriter(Chunked(file, self.step))


class Chunked(io.FileIO):
    """A file that takes sixteen kilobytes at a time."""

    def __init__(self, path: Path, step: Callable[[], None]) -> None:
        super().__init__(path, "w")
        self.step = step

    def write(self, data: Any) -> int:
        self.step()
        return super().write(memoryview(data)[:CHUNK_BYTES]) or 0


def main(source: Path, pages: Path, scenarios: Sequence[Path]) -> None:
    recorded = Recording.open(source)
    cases = [case.case(pages) for case in recorded.cases.values()]
    reference = Replay({case_id: case.observation for case_id, case in recorded.cases.items()})
    assert all(case.page_sha256 for case in cases)  # is kept: every fork would load the pages anew
    for scenario in scenarios:
        steps = 0
        while dies(steps, scenario, reference, cases):
            steps += 1


def dies(steps: int, scenario: Path, reference: Replay, cases: Sequence[Case]) -> bool:
    """Run the recorder for as many steps; whether it died before its end."""
    golden = scenario / str(steps)
    shutil.copytree(scenario / "start", golden)
    child = os.fork()
    if not child:
        Fuse(steps).light()
        record(golden, reference, cases, again=scenario.name == "again")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        raise SystemExit(f"the recorder failed by itself in {golden}")
    return status != 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(scenario) for scenario in sys.argv[3:]])
