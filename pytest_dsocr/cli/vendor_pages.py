"""``dsocr vendor record``: run the vendor's code on pages and keep recordings."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.progress import progress_bar
from pytest_dsocr.base.words import count
from pytest_dsocr.cli.arguments import PAGES, add, add_environment, add_model, add_vendor
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.pages.named import Cases, make_cases
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.reference.environment import find_environment
from pytest_dsocr.reference.goldens import OWN, RECORDINGS, check_writable

if TYPE_CHECKING:
    from tqdm import tqdm

    from pytest_dsocr.records.reference_result import ReferenceResult
    from pytest_dsocr.reference.live import LiveReference
    from pytest_dsocr.reference.recorder import Recorder
    from pytest_dsocr.reference.recording import Recording


def add_record(command: ArgumentParser) -> None:
    """Add the vendor's code, the pages, prompts and presets, and the folder for recordings."""
    add_vendor(command)
    command.add_argument("pages", type=Path, nargs="+", help=PAGES)
    add_environment(command)
    add_model(command)
    add(command, "--presets", "tiny, small, base, large, gundam", ["gundam"], nargs="+", metavar="PRESET")
    what = "prompts' names, or texts with <image> in them"
    add(command, "--prompts", what, ["markdown"], nargs="+", metavar="PROMPT")
    ceiling = "stop after this many tokens (default: as many as the vendor's code)"
    command.add_argument("--max-new-tokens", type=int, metavar="TOKENS", help=ceiling)
    add(command, "--time-limit", "longest time without a sign of progress", 600.0, type=float, metavar="SECONDS")
    add(command, "--start-limit", "the same limit during the start", START_LIMIT_S, type=float, metavar="SECONDS")
    add(command, "--golden", "folder of recordings to write to", OWN / RECORDINGS, type=Path, metavar="FOLDER")
    command.add_argument("--again", action="store_true", help="record cases again that have a recording")


def record(options: Namespace) -> Iterator[str]:
    """Record cases besides earlier ones, and yield lines; pages that cannot be opened are an error at the end."""
    check_writable(options.golden, "--golden DIR")
    found = found_by(options).readable()
    if not found.good:
        raise MachineError(found.bad[0].why)
    yield from (f"left out    {page.why}" for page in found.bad)
    yield from _recorded(found.good, options)
    if found.bad:
        raise MachineError(f"left out {count(len(found.bad), 'page')}, as is said above; mend what is wrong with them")


def found_by(options: Namespace) -> Cases:
    """Return each page in each preset with each prompt that ``options`` name, and the pages that cannot be opened."""
    family = family_named(options.checkpoint)
    return make_cases(options.pages, options.prompts, options.presets, options.max_new_tokens, family=family)


def _recorded(cases: Sequence[Case], options: Namespace) -> Iterator[str]:
    from pytest_dsocr.reference.recorder import recorder

    with progress_bar(unit="case") as bar, live_reference(options, bar) as reference:
        made = reference.provenance
        yield f"reference   {made.checkpoint}, {made.device}, {made.dtype}, {made.attention}"
        with recorder(options.golden, made) as target:
            yield from _record(cases, reference, target, bar, options)
            recording = target.publish()
    yield from _summary(recording, options)


def live_reference(options: Namespace, bar: tqdm[Any]) -> LiveReference:
    """Return the vendor's code as a reference. It starts with the first request, and the bar shows its progress."""
    from pytest_dsocr.reference.live import LiveReference

    def on_progress(what: str, done: int, total: int | None) -> None:
        bar.set_postfix_str(f"{what} {done / total:.0%}" if total and what == "weights" else f"{what} {done}")

    return LiveReference(
        options.vendor,
        options.checkpoint,
        python=find_environment(options.env),
        device=options.device,
        dtype=options.dtype,
        attention=options.attention,
        time_limit_s=options.time_limit,
        start_limit_s=options.start_limit,
        keep_values=False,
        command=_command(options),
        on_progress=on_progress,
    )


def _record(
    cases: Sequence[Case], reference: LiveReference, target: Recorder, bar: tqdm[Any], options: Namespace
) -> Iterator[str]:
    missing = target.missing(cases, again=options.again)
    yield f"recording   {target.folder}: {len(cases) - len(missing)} of {len(cases)} cases are there"
    yield from (f"note        {note}" for note in target.notes)
    bar.reset(total=len(missing))
    try:
        for case in missing:
            bar.set_description_str(case.id)
            started_s = monotonic()
            observation = reference.observe(case)
            target.add(case, observation)
            bar.update()
            bar.clear()
            yield line_of(case, observation, monotonic() - started_s)
    except (KeyboardInterrupt, DsocrError):
        how = "the same command without --again" if options.again else "the same command"
        yield f"kept        {len(cases) - len(missing) + bar.n} of {len(cases)} cases; {how} continues from there"
        raise


def line_of(case: Case, observation: ReferenceResult, seconds: float) -> str:
    """Return the result of a case as one line."""
    boxes = sum(len(span.boxes) for span in observation.output.spans)
    return f"  {case.id:<40} {len(observation.steps):>5} tokens {boxes:>4} boxes {seconds:>7.1f} s"


def _summary(recording: Recording, options: Namespace) -> Iterator[str]:
    size_bytes = sum(file.stat().st_size for file in recording.folder.iterdir())
    cases = len(recording.cases)
    size = f"{size_bytes / 1e3:.0f} kB, {size_bytes // cases} bytes a case"
    yield f"holds       {recording.folder}: {cases} cases, {size}"
    pages = shlex.join(str(page) for page in options.pages)
    yield f"next        dsocr compare {pages} --reference {options.golden} --checkpoint {options.checkpoint}"


def _command(options: Namespace) -> str:
    """Return the command with everything that the recording depends on, and no path of this machine."""
    words = ["dsocr", *options.command.split(), _name(options.vendor), *(_name(page) for page in options.pages)]
    words += ["--checkpoint", _name(options.checkpoint), "--device", options.device]
    words += ["--dtype", options.dtype, "--attention", options.attention]
    words += ["--presets", *options.presets, "--prompts", *options.prompts]
    if options.max_new_tokens is not None:
        words += ["--max-new-tokens", str(options.max_new_tokens)]
    return shlex.join(words)


def _name(path: str | Path) -> str:
    return Path(path).name if Path(path).is_absolute() else str(path)
