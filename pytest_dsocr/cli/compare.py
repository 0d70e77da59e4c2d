"""``dsocr compare``: run the suites on a subject. The exit status is 0 only if the run was finished and passed.

Other statuses distinguish a wrong model from a broken machine; see :mod:`pytest_dsocr.report.file`.

pytest runs in a process of its own and sends the digest of its result over a pipe. The run passes only if that process
left a finished result with this digest.
"""

import os
import signal
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.process import IDLE_WAITS, end_with_parent
from pytest_dsocr.plugin.options import OPTIONS, SPREAD
from pytest_dsocr.plugin.selection import WORDS, asks_for_times
from pytest_dsocr.report.file import (
    CHANGED,
    EXIT_STATUS,
    RUN_ID,
    WITNESS,
    ChangedError,
    Ending,
    RefusedError,
    RunIdentity,
    mark_ended,
    mark_running,
    read_result,
)
from pytest_dsocr.report.words import ON_REQUEST, SAFE_PATH, suites

NAME, HOOKS = "dsocr", "pytest_dsocr.plugin.hooks"
DEFAULT_OUT, OUT_FLAG = "dsocr-out", "--dsocr-out"
GROUPS = {
    title: names.split()
    for title, names in {
        "subject": "subject model checkpoint device dtype attention level isolate",
        "reference": "reference reference_device reference_dtype reference_attention kept_answers vendor_env golden",
        "pages": "pages presets prompts max_new_tokens repeat shard",
        "limits": "tolerances quantization_budget max_slowdown max_rounds baseline_update baseline_days "
        "allow_missing no_skip",
        "report": "out explain xfails",
        "run": "subject_time_limit start_limit time_limit",
    }.items()
}
"""Options by topic, as ``--help`` groups them."""
DIGESTS = 65_536
"""Bytes that a pipe holds. They are enough for a thousand digests, and pytest sends one or two."""
FORWARDED = (signal.SIGINT, signal.SIGTERM)
MEMORY_KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000"}
"""Settings that make glibc keep freed memory. SAM's scores take 67 MB a head. Without them, glibc returns this memory
after each layer and requests it again, which costs 5 % of a run's CPU time. Other systems ignore them."""


def add_run(command: ArgumentParser) -> None:
    """Add every option of the plugin, with and without ``dsocr-`` in its name."""
    command.usage = "dsocr compare [PAGES ...] [options] [-- pytest options]"
    pages = command.add_argument_group("pages")
    pages.add_argument("named", nargs="*", metavar="PAGES", help="the same as --pages=PAGES")
    what = "run these tests instead of the suites; may be given several times"
    groups = {title: pages if title == "pages" else command.add_argument_group(title) for title in GROUPS}
    groups["run"].add_argument("--tests", action="append", metavar="PATH", help=what)
    for title, names in GROUPS.items():
        for option in (option for option in OPTIONS if option.name in names):
            option.add_to(groups[title], DEFAULT_OUT if option.name == "out" else "")


def split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split the arguments of ``compare`` at ``--``: ours before it, pytest's after it."""
    if arguments[:1] != ["compare"] or "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def run(options: Namespace) -> Iterator[str]:
    """Run the suites, which print their own summary. ``options.status`` becomes 0 only if the run passed."""
    out = Path(getattr(options, "out", [os.environ.get("DSOCR_OUT", "").strip() or DEFAULT_OUT])[-1])
    if [word for word in options.of_pytest if word.partition("=")[0] == OUT_FLAG]:
        raise DsocrError(f"{OUT_FLAG} comes after --; give --out before it")
    times = asks_for_times(options) or any(word.startswith(WORDS) for word in options.of_pytest)
    tests = options.tests or suites([name for name in ON_REQUEST if name != "perf" or not times])
    as_usual = options.tests or options.of_pytest or times or os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    spread = [] if as_usual or find_spec("xdist") is None else [SPREAD]
    in_order = ["-pno:randomly"] if find_spec("pytest_randomly") and not options.tests else []
    how = [f"-p{plugin()}", *in_order, *spread, f"{OUT_FLAG}={out}"]
    arguments = [*tests, *how, *words_of(options), *options.of_pytest]
    command = [sys.executable, SAFE_PATH, "-m", "pytest", *arguments]
    identity = RunIdentity.now(" ".join(["pytest", *arguments]))
    mark_running(out, identity)
    if named := [*options.named, *getattr(options, "pages", ())]:
        from pytest_dsocr.pages.named import check_any

        try:
            check_any(named)
        except DsocrError as error:
            mark_ended(out, identity, str(error), Ending.INFRASTRUCTURE)
            raise
    waits = {} if times or options.tests else IDLE_WAITS
    status, digest = status_of(command, identity.id, {**MEMORY_KEPT, **waits, **os.environ})
    options.status = status or 1
    try:
        result = read_result(out, identity.id, digest=digest)
    except RefusedError as refused:  # which pytest has printed
        options.status = EXIT_STATUS[Ending(refused.ended_as)]
        return
    except ChangedError as changed:
        mark_ended(out, identity, str(changed), Ending.CHANGED, CHANGED)
        raise
    if status in (0, 1):  # pytest's own, which the ending makes more exact
        options.status = EXIT_STATUS[Ending(result["ended_as"])] or status
    if status == 0 and not result["passes"]:
        yield f"dsocr: {result['verdict']}"


def plugin() -> str:
    """Return the name by which pytest loads the plugin: its entry point, or its module if it is not installed."""
    return NAME if any(one.name == NAME for one in entry_points(group="pytest11")) else HOOKS


def words_of(options: Namespace) -> Iterator[str]:
    """Yield the options as arguments of pytest, except the output folder."""
    yield from (f"--dsocr-pages={page}" for page in options.named)
    for option in OPTIONS:
        yield from option.words(options) if option.name != "out" else ()


def status_of(
    command: Sequence[str], run_id: str, environment: Mapping[str, str], output: IO[bytes] | None = None
) -> tuple[int, str]:
    """Run a command to its end; return its exit status, as a shell would, and the digest of its result.

    Args:
        output: file for all that it prints; by default this process's own output.
    """
    ours, pytests = os.pipe()
    environment = {**environment, RUN_ID: run_id, WITNESS: str(pytests)}
    with open(ours, "rb", buffering=0) as pipe:  # noqa: PTH123 - no path
        with open(pytests, "wb"):  # noqa: PTH123
            process = subprocess.Popen(
                command, env=environment, pass_fds=(pytests,), preexec_fn=end_with_parent, stdout=output, stderr=output
            )
        with _forwarding(process):
            status = process.wait()
        os.set_blocking(ours, False)  # whoever may hold the other end still
        lines = (pipe.read(DIGESTS) or b"").split()
    return status if status >= 0 else 128 - status, lines[-1].decode() if lines else ""


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Forward SIGTERM to the process and keep waiting, so that it can print its summary.

    SIGINT is not forwarded, because a terminal sends it to both processes.
    """

    def forward(number: int, _: object) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
