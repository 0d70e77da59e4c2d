"""Nights of several machines made into one: ``dsocr nightly --merge FOLDER FOLDER ... --out FOLDER``.

Each was run with its own ``--shard``. The parts that were spread are merged by ``dsocr merge``; the others are copied.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import count, in_shell, listed
from pytest_dsocr.night.config import PARTS
from pytest_dsocr.night.jobs import LOG
from pytest_dsocr.night.run import finish, note_result, write
from pytest_dsocr.night.state import MACHINE, Entry, NightState, Step, read_night
from pytest_dsocr.report.commands import SAFE_PATH
from pytest_dsocr.report.file import now


def merge(folders: Sequence[Path], out: Path, history: str) -> Generator[str, None, int]:
    """Merge the nights of machines, and yield what to tell the user.

    Args:
        folders: of the machines' nights.
        out: of the whole night.
        history: folder that it is added to; empty for none.

    Returns:
        The worst status of its parts.

    Raises:
        DsocrError: where they are not of one night, or nothing can be written.
    """
    nights = [read_night(folder) for folder in folders]
    _check(nights, folders)
    config = replace(nights[0].config, out=str(out), history=history, shard="")
    facts = {**nights[0].facts, "gpus": [gpu for night in nights for gpu in night.facts.get("gpus", ())]}
    whole = NightState(nights[0].commit, config, min(night.started for night in nights), facts=facts)
    out.mkdir(parents=True, exist_ok=True)
    done = [(folder, entry) for folder, night in zip(folders, nights, strict=True) for entry in night.entries]
    for name in dict.fromkeys(entry.name for _, entry in done):
        same = [(folder, entry) for folder, entry in done if entry.name == name]
        whole.entries += [_merged(same, out)] if _is_spread(same) else _copied(same, out)
        yield f"{name:<16}{', '.join(entry.word for _, entry in same)}"
    for entry in whole.entries:
        if entry.step is Step.DONE and PARTS[entry.part].suites:
            note_result(entry, out / entry.name, config)
    whole.ended = now()
    write(whole, out)
    return (yield from finish(whole, out))


def _check(nights: Sequence[NightState], folders: Sequence[Path]) -> None:
    for night, folder in zip(nights, folders, strict=True):
        if not night.ended:
            raise DsocrError(f"the night in {folder} is not finished; the same command that began it goes on with it")
    if len({night.commit for night in nights}) > 1:
        raise DsocrError(f"their commits are {listed([str(night.commit) for night in nights])}; merge those of one")
    shards = [night.config.part_of_pages for night in nights]
    if sorted(shards) != [(k, len(shards)) for k in range(1, len(shards) + 1)]:
        raise DsocrError(f"these are shards {listed([*map(str, shards)])}; give each of one night once")


def _is_spread(same: Sequence[tuple[Path, Entry]]) -> bool:
    part = PARTS[same[0][1].part]
    return len(same) > 1 and bool(part.suites) and not part.first_pages


def _copied(same: Sequence[tuple[Path, Entry]], out: Path) -> list[Entry]:
    """Copy what one machine did, or each for itself."""
    found = []
    for number, (folder, entry) in enumerate(same, 1):
        name = entry.name if len(same) == 1 else f"{entry.name}-{number}"
        if (folder / entry.name).is_dir():
            try:
                shutil.copytree(folder / entry.name, out / name, dirs_exist_ok=True)
            except OSError as error:
                raise DsocrError(f"{out / name} cannot be written ({error}); make room") from error
        found.append(replace(entry, name=name))
    return found


def _merged(same: Sequence[tuple[Path, Entry]], out: Path) -> Entry:
    """Make one result of a part that was spread; where a machine did not do its share, it is not done."""
    first, target = same[0][1], out / same[0][1].name
    undone = [f"{entry.word} in {folder}: {entry.why}" for folder, entry in same if entry.step is not Step.DONE]
    done = [str(folder / entry.name) for folder, entry in same if entry.step is Step.DONE]
    command = [sys.executable, SAFE_PATH, "-m", "pytest_dsocr", "merge", *done, f"--out={target}", "--unfinished"]
    status = MACHINE
    if done:
        target.mkdir(parents=True, exist_ok=True)
        with (target / LOG).open("wb") as log:
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    return Entry(
        first.name,
        first.part,
        first.pages,
        step=Step.ENDED if undone else Step.DONE,
        status=status,
        seconds=max(entry.seconds for _, entry in same),
        why="; ".join(undone),
        verdict=f"{count(len(done), 'machine')} of {len(same)}" if undone else "",
        ended=now(),
        command=in_shell(command),
    )
