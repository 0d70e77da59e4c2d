"""The jobs of a night, each a part of it or a batch of its pages, the commands that run them, and their processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from pytest_dsocr.night.state import DOCTOR, PARTS, Config, Entry, Part
from pytest_dsocr.report.words import SAFE_PATH, suites

DOCTOR_JSON, JUNIT, LOG = "doctor.json", "junit.xml", "output.log"


def jobs(config: Config, pages: Mapping[str, Sequence[str]]) -> Iterator[Entry]:
    """Yield what there is to do, in order of worth; ``pages`` are the files of each field that names some."""
    usual = [name for name, part in PARTS.items() if config.vendor or not part.is_live]
    for name in config.parts or usual:
        part = PARTS[name]
        own = tuple(pages["live_pages" if part.is_live and config.live_pages else "pages"])
        if part.first_pages:
            yield Entry(name, name, own[: max(part.first_pages, 0)])
        else:
            size = config.batch or max(len(own), 1)
            batches = [own[at : at + size] for at in range(0, len(own), size)]
            yield from (
                Entry(name if len(batches) == 1 else f"{name}-{number:03}", name, batch)
                for number, batch in enumerate(batches, start=1)
            )


def command(job: Entry, config: Config, folder: Path, gpus: int) -> list[str]:
    """Return the command that runs a job, and writes into ``folder``."""
    ours = [sys.executable, SAFE_PATH, "-m", "pytest_dsocr"]
    if job.part == DOCTOR:
        return [*ours, "doctor", f"--json={folder / DOCTOR_JSON}", *_setting(job, config), f"--out={config.out}"]
    part = PARTS[job.part]
    processes = min(gpus if config.on_gpu else config.workers, len(job.pages))
    workers = 1 if part.is_timed or part.first_pages else processes
    own = [one for one in suites(()) if one.startswith("-") or one.replace(".", "/").rpartition("/")[2] in part.suites]
    of_pytest = [f"--junitxml={folder / JUNIT}", "-p", "no:cacheprovider", *config.pytest]
    of_pytest += ["-n", str(workers)] if workers > 1 else []
    return [
        *ours,
        "compare",
        *(f"--tests={test}" for test in own),
        *_setting(job, config),
        *_promise(part, config),
        f"--out={folder}",
        "--",
        *of_pytest,
    ]


def environment(job: Entry, config: Config) -> dict[str, str]:
    """Return the variables that a job has beyond those of the night."""
    gpus = config.gpus[:1] if PARTS[job.part].is_timed else config.gpus
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus and config.on_gpu else {}


def may_miss(part: Part, config: Config) -> list[str]:
    """Return what may be missing: what the part cannot have, and what the file allows."""
    lacking = [*(["gpu"] if not config.on_gpu else []), *(["vendor"] if not part.is_live else []), *config.may_miss]
    return list(dict.fromkeys(lacking))


def _setting(job: Entry, config: Config) -> Iterator[str]:
    """Yield the options that every command takes."""
    names = ["checkpoint", "device", "dtype", "attention", "vendor_env", "golden"]
    yield from (f"--{name.replace('_', '-')}={value}" for name in names if (value := getattr(config, name)))
    pages = config.pages if job.part == DOCTOR else job.pages
    yield from (f"--pages={page}" for page in pages)
    if config.vendor and (job.part == DOCTOR or PARTS[job.part].is_live):
        yield f"--reference={config.vendor}"


def _promise(part: Part, config: Config) -> Iterator[str]:
    """Yield what the run is held to: everything, but for what the part cannot have, and what the file allows."""
    yield f"--subject={config.subject}"
    if config.no_skip and not part.is_timed:  # a subject has either vision or its parts, so that perf skips some test
        yield "--no-skip"
    yield from (f"--may-miss={what}" for what in may_miss(part, config))
    for name in ("level", "max_new_tokens", "xfails"):
        if value := getattr(config, name):
            yield f"--{name.replace('_', '-')}={value}"


TIME_IS_OVER = "its time was over"


def run_command(
    command: Sequence[str], log: Path, variables: Mapping[str, str], limit_s: float, grace_s: float
) -> tuple[int, float, str]:
    """Run a command to its end, or to that of its time. It belongs to the group of this process, and dies with it.

    Returns:
        Its exit status as a shell gives it, the seconds it took, and why it was ended, if it was.
    """
    started_s = monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **variables}
        )
        why = ""
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status, why = _end(process, grace_s), TIME_IS_OVER
        except BaseException:
            _end(process, grace_s)
            raise
    return (status if status >= 0 else 128 - status), monotonic() - started_s, why


def _end(process: subprocess.Popen[bytes], grace_s: float) -> int:
    """Ask a process to end, which writes what it has; then kill it with all that it started."""
    started = [*_below(process.pid)]
    process.terminate()
    try:
        return process.wait(grace_s)
    except subprocess.TimeoutExpired:
        for pid in (*started, *_below(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return process.wait()


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that one has started, and those that they have, where Linux lists them."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text(encoding="ascii").split()]
        except OSError:
            continue
        for child in children:
            yield from (child, *_below(child))
