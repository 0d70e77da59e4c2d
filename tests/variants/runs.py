"""Runs of ``dsocr compare`` on variants, several at a time, each a line of JSON once it has ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from pytest_dsocr.base.process import IDLE_WAITS, THREADS, cores, end_with_parent
from pytest_dsocr.report.document import RESULTS, RunJson
from pytest_dsocr.report.file import Ending
from tests.variants.table import VARIANTS

POLL_S = 0.2
JUDGED = (Ending.PASSES, Ending.WRONG)
"""Endings that say something about the variant, and not about the machine."""


class FailedTest(Struct, frozen=True):
    """A test that a run failed, with what it measured."""

    test: str
    why: str
    wrong: list[str]
    """A line for each comparison that does not pass."""


class VariantRun(Struct, frozen=True):
    """Result of one run."""

    variant: str
    checkpoint: str
    time: int
    """Number of the run among those of this variant and checkpoint, from 1."""
    device: str
    dtype: str
    ended_as: str
    verdict: str
    seconds: dict[str, float]
    """Seconds by part, and of the whole process as ``process``."""
    failed: list[FailedTest] = []
    comparisons: int = 0

    @property
    def key(self) -> tuple[str, str, int]:
        """Variant, checkpoint and number."""
        return self.variant, self.checkpoint, self.time

    @property
    def is_judged(self) -> bool:
        """Whether the run came to a verdict on the variant."""
        return self.ended_as in JUDGED

    @property
    def is_false_alarm(self) -> bool:
        """Whether the correct variant was called wrong."""
        return self.ended_as == Ending.WRONG


@dataclass(frozen=True)
class Job:
    """A run to make."""

    variant: str
    checkpoint: str
    time: int
    device: str
    device_name: str
    dtype: str
    stored: str
    """Name under which the checkpoint is loaded."""
    options: tuple[str, ...]
    """Further options of ``dsocr compare``."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Variant, checkpoint and number."""
        return self.variant, self.checkpoint, self.time

    @property
    def label(self) -> str:
        """Name of its folder."""
        return f"{self.variant}-{self.checkpoint.replace(':', '-').replace('/', '-')}-{self.time}"

    def command(self, out: Path) -> list[str]:
        """Return the command that runs every suite."""
        listed = VARIANTS[self.variant]
        sides = f"--subject={listed.subject}", f"--checkpoint={self.stored}", "--reference=engine"
        where = f"--device={self.device}", f"--dtype={self.dtype}", f"--out={out}", "--explain=0"
        as_users = "--", "-Wdefault"  # this project's pytest fails on warnings; any argument keeps it in one process
        command = [sys.executable, "-m", "pytest_dsocr", "compare"]
        return [*command, *listed.pages, *sides, *where, *self.options, *as_users]

    def result(self, out: Path, elapsed_s: float) -> VariantRun:
        """Read the run's result; without one it is of the machine."""
        seconds = {"process": round(elapsed_s, 1)}
        told = self.variant, self.checkpoint, self.time, self.device_name, self.dtype
        try:
            found: RunJson = RESULTS.read(out / "dsocr.json")
        except Exception as error:
            return VariantRun(*told, Ending.INFRASTRUCTURE, f"no result: {error}", seconds)
        for one in found.elapsed:
            seconds |= {part: round(seconds.get(part, 0) + spent, 1) for part, spent in one.seconds.items()}
        failed = [
            FailedTest(test.nodeid, test.why, [f"{c.what}: {c.measured}" for c in test.comparisons if not c.passes])
            for test in found.tests
            if test.why
        ]
        return VariantRun(*told, found.ended_as, found.verdict, seconds, failed, found.comparisons)


def run_all(jobs: Sequence[Job], at_once: int, out: Path, until_s: float) -> Iterator[VariantRun]:
    """Run jobs and yield each result as it comes; what has not ended at ``until_s`` of the clock is ended.

    Args:
        jobs: runs to make, in their order.
        at_once: number of processes.
        out: folder in which each run has its own.
        until_s: as ``time.monotonic`` counts.
    """
    waiting, running = [*jobs], list[tuple[Job, subprocess.Popen[bytes], float]]()
    try:
        while (waiting or running) and time.monotonic() < until_s:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                running.append((job, started(job, out / job.label, at_once), time.monotonic()))
            time.sleep(POLL_S)
            for one in [one for one in running if one[1].poll() is not None]:
                running.remove(one)
                yield one[0].result(out / one[0].label, time.monotonic() - one[2])
    finally:
        for _, process, _ in running:
            end(process)


def started(job: Job, out: Path, at_once: int) -> subprocess.Popen[bytes]:
    """Start a run as one of ``at_once``, in a group of processes of its own."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "dsocr.json").unlink(missing_ok=True)
    environment = {**IDLE_WAITS, **os.environ, THREADS: os.environ.get(THREADS, str(max(1, cores() // at_once)))}
    with (out / "output.txt").open("wb") as output:
        return subprocess.Popen(
            job.command(out),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a run with its whole group: ``compare`` waits for pytest, and nobody waits for the result any more."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


LINES = msgspec.json.Decoder(VariantRun)


def kept(file: Path) -> list[VariantRun]:
    """Return the runs that a file has; none if there is no file."""
    return [LINES.decode(line) for line in file.read_bytes().splitlines()] if file.is_file() else []


def keep(run: VariantRun, file: Path) -> None:
    """Add a run to a file."""
    with file.open("ab") as lines:
        lines.write(msgspec.json.encode(run) + b"\n")
