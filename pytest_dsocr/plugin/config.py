"""Config of a run and of its workers: all options, resolved once when something of ours is first used.

The command line counts before the environment, then the ini file, then the default. A project that does not use the
plugin is never refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError, is_of_machine
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.process import check_system, cores
from pytest_dsocr.base.words import in_shell
from pytest_dsocr.engine.places import split_model
from pytest_dsocr.plugin import option_values as read
from pytest_dsocr.plugin.option import Option, texts_of, value_of
from pytest_dsocr.plugin.options import OPTIONS, OUT, SPREAD
from pytest_dsocr.plugin.stash import CONFIG, IDENTITY, NAMED, NOTES, OUT_FOLDER, WATCHED, WITNESS, uncaptured
from pytest_dsocr.records.config import Config, Level
from pytest_dsocr.reference.goldens import check_writable, golden_folder
from pytest_dsocr.report.ci import append_markdown, errors
from pytest_dsocr.report.file import (
    EXIT_STATUS,
    SUMMARY_NAME,
    Ending,
    RunIdentity,
    mark_ended,
    mark_running,
    take_witness,
)
from pytest_dsocr.report.views import markdown
from pytest_dsocr.subjects.calls import begin, current, end
from pytest_dsocr.subjects.loading import level_before_loading

if TYPE_CHECKING:
    from pytest_dsocr.pages.named import Cases

WORKERS = 2
"""Workers of a small run. Two save a third of the time of one, if the subject has stages."""


def workers_for(config: Config) -> int:
    """Return the number of a run's workers, or 0 to run in pytest's own process.

    A subject that only reads is done before a worker has started. A large model, or one on a GPU, would take its
    memory once for each worker.
    """
    offered = level_before_loading(config.subject, may_import=not config.isolate)
    is_small = config.checkpoint == "mini" and config.device == "cpu"
    return WORKERS if is_small and offered is not Level.TEXT and cores() >= WORKERS else 0


def on_own_gpu(config: Config, worker: str) -> Config:
    """Return the config of a worker such as ``gw1``. Workers with the device ``cuda`` share the visible GPUs."""
    if config.device != "cuda" or not worker:
        return config
    import torch

    gpu = f"cuda:{int(worker.removeprefix('gw')) % torch.cuda.device_count()}"
    reference = gpu if config.reference_device == "cuda" else config.reference_device
    return replace(config, device=gpu, reference_device=reference)


WORDS = {"checkpoint": ("mini",), "reference": ("recorded", "engine"), "kept_answers": ("off",)}
"""Words of options that also take paths. A folder of such a name is written ``./mini``."""
ENGINE = "engine"
UPDATES = ("update_snapshots", "update_new_snapshots_only")


def own_config(config: pytest.Config) -> Config:
    """Return the run's options, resolved at the first call.

    Raises:
        pytest.UsageError: on a bad value, and on Windows.
    """
    if CONFIG not in config.stash:
        try:
            check_system()
        except DsocrError as error:
            raise pytest.UsageError(str(error)) from error
        _watch(config)
        own = on_own_gpu(resolve(config), getattr(config, "workerinput", {}).get("workerid", ""))
        _check_goldens(config, own)
        current().limit(own.subject_time_limit, own.start_limit)
        config.stash[CONFIG] = own
    return config.stash[CONFIG]


def cases_of(config: pytest.Config) -> Cases:
    """Return the cases and bad pages that the options name, made at the first call."""
    if NAMED not in config.stash:
        from pytest_dsocr.engine.places import family_named
        from pytest_dsocr.pages.named import make_cases

        own = own_config(config)
        asked = (own.pages, own.prompts, own.presets, own.max_new_tokens, own.shard)
        config.stash[NAMED] = make_cases(*asked, family=family_named(own.checkpoint))
    return config.stash[NAMED]


def _watch(config: pytest.Config) -> None:
    """Watch the subject from now on. Reading the options may already import it. Messages go past pytest's capture."""
    if WATCHED not in config.stash:
        config.stash[WATCHED] = True
        with uncaptured(config):
            watch = begin(config.stash.setdefault(NOTES, []))
        config.add_cleanup(partial(end, watch))


def resolve(config: pytest.Config) -> Config:
    """Return the config of a run.

    Raises:
        pytest.UsageError: on a bad value. The message says where it was given, and lists the valid ones.
    """
    found = {option.name: _value(option, config, config.option) for option in OPTIONS}
    places = {option.name: next(_places(option, config, config.option), None) for option in OPTIONS}
    home = f"{config.rootpath}/"
    found["given_by"] = {name: given[0].replace(home, "") for name, given in places.items() if given}
    if not found["isolate"]:  # an isolated subject is not imported into this process
        _value(replace(OPTIONS[0], reader="importable_subject"), config, config.option)
    if found["reference"] == found["subject"] == ENGINE:
        raise pytest.UsageError("the engine is compared with itself; name another subject, or leave the reference out")
    is_written = found["baseline_update"] or _updates_snapshots(config)
    found["golden"] = found["golden"] or golden_folder(is_written=is_written)
    if found["model"]:
        found["checkpoint"] = f"{found['model']}:{split_model(found['checkpoint'])[1]}"
    return Config(**found)


def typed_options(config: pytest.Config) -> list[str]:
    """Return the arguments of ``pytest`` without tests and defaults. Our flags are joined to their values."""
    elsewhere = {option.name for option in OPTIONS if config.getini(option.ini) or [*option.in_environment()]}
    defaults = [f"{one.flag}={one.default}" for one in OPTIONS if one.name not in elsewhere and not one.many]
    ours = (*config.args, *defaults, SPREAD)  # one test is not spread
    return [word for word in joined(map(str, config.invocation_params.args)) if word not in ours]


def joined(words: Iterable[str]) -> list[str]:
    """Return ``--dsocr-pages=scans`` for ``--dsocr-pages scans``.

    pytest takes a separate path for a test to run, and may take its project for the root.
    """
    flags = {option.flag for option in OPTIONS if not option.is_switch}
    found: list[str] = []
    for word in words:
        if found and found[-1] in flags:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def command_of(config: pytest.Config) -> str:
    """Return the command line as the user wrote it."""
    return in_shell(["pytest", *map(str, config.invocation_params.args)])


def start(config: pytest.Config, typed: Any) -> None:
    """Mark the run's result as running, unless it is marked already or no result is written. Workers do nothing.

    Args:
        config: pytest's, perhaps not configured yet: the result's folder is needed before the other options.
        typed: the parsed command line.

    Raises:
        pytest.UsageError: if it cannot be written.
        SystemExit: if the machine is the reason.
    """
    if OUT_FOLDER in config.stash or hasattr(config, "workerinput"):
        return
    out: Path | None = _value(OUT, config, typed)
    if out is None:
        return
    config.stash[WITNESS] = take_witness()
    identity = RunIdentity.now(command_of(config))
    try:
        mark_running(out, identity)
    except DsocrError as error:
        if is_of_machine(error):
            sys.stderr.write(f"ERROR: --dsocr-out: {error}\n")
            raise SystemExit(EXIT_STATUS[Ending.INFRASTRUCTURE]) from error  # a usage error has a status of pytest's
        raise pytest.UsageError(f"--dsocr-out: {error}") from error
    config.stash[OUT_FOLDER], config.stash[IDENTITY] = out.absolute(), identity


def refused(config: pytest.Config, error: Exception) -> None:
    """Write into a marked result that the run is refused, and whether the machine is the reason."""
    if OUT_FOLDER not in config.stash:
        return
    ended_as = Ending.INFRASTRUCTURE if is_of_machine(error) else Ending.REFUSED
    out = config.stash[OUT_FOLDER]
    with suppress(DsocrError):  # pytest tells the error itself
        result = mark_ended(out, config.stash[IDENTITY], str(error), ended_as)
        write_whole(out / SUMMARY_NAME, summary := markdown(result))
        append_markdown(summary)
        sys.stdout.writelines(f"{line}\n" for line in errors(result))


def _check_goldens(config: pytest.Config, own: Config) -> None:
    """Refuse a golden folder that does not exist or, if this run makes goldens, must not be written to."""
    if _updates_snapshots(config):
        try:
            check_writable(own.golden, "--dsocr-golden=DIR")
        except DsocrError as error:
            raise pytest.UsageError(str(error)) from error
    elif not (own.golden.is_dir() or own.baseline_update):
        raise pytest.UsageError(
            f"there is no folder {own.golden} of goldens; make one: --snapshot-update, or dsocr vendor record --golden"
        )


def _updates_snapshots(config: pytest.Config) -> bool:
    return any(config.getoption(name, False) for name in UPDATES)


def _value(option: Option, config: pytest.Config, typed: Any) -> Any:
    """Read an option's value from all places. A bad value is a usage error."""
    try:
        return value_of(option, _places(option, config, typed))
    except DsocrError as error:
        raise pytest.UsageError(str(error)) from error


def _places(option: Option, config: pytest.Config, typed: Any) -> Iterator[tuple[str, Any]]:
    """Yield each place where an option was given, and its value. The first one counts."""
    if (on_command_line := getattr(typed, option.ini, None)) is not None:
        yield option.flag, on_command_line
    yield from option.in_environment()
    if (in_ini_file := config.getini(option.ini)) is not None:
        beside = [_beside(config, option, text) for text in texts_of(in_ini_file)]
        yield f"{option.ini} in {config.inipath}", beside if option.many else beside[0]


def _beside(config: pytest.Config, option: Option, text: str) -> str:
    """Return a path from the ini file relative to that file, as pytest does. Return other values unchanged."""
    home = (config.inipath or Path()).parent
    if home == Path.cwd():  # unchanged: ./engine is a folder, engine is not
        return text
    beside = home / text
    is_word = text in WORDS.get(option.name, ())
    is_path = option.read in (read.folder, read.present_folder, read.ledger, read.kept_answers) and not is_word
    may_be = option.read in (read.page, read.reference, read.checkpoint) and not is_word
    return str(beside) if text and (is_path or (may_be and beside.exists())) else text
