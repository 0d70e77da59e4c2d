"""A night added to the folder of all nights, with the page over them."""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.nights import record
from pytest_dsocr.nights.page import html
from pytest_dsocr.nights.state import NightState
from pytest_dsocr.nights.summary import Told
from pytest_dsocr.perf.history import in_series

PAGE = "index.html"


def keep(night: NightState, found: Told, folder: Path) -> Path:
    """Add a night that has ended, and make the page anew; give the page.

    Args:
        night: the night.
        found: what its jobs wrote.
        folder: of all nights.

    Raises:
        DsocrError: where the disk does not take it.
    """
    record.add(folder, _record(night, found))
    nights, damaged = record.read(folder)
    page = html(nights, in_series(line for one in nights for line in one.times), damaged)
    write_whole(folder / PAGE, page.encode("utf-8", "replace"))
    return folder / PAGE


def _record(night: NightState, found: Told) -> record.Night:
    config, facts = night.config, night.facts
    setting = f"{config.checkpoint}/{config.device}-{config.dtype}-{config.attention}"
    parts: list[record.Part] = [
        {
            "name": entry.name,
            "word": entry.word,
            "seconds": entry.seconds,
            "why": entry.why,
            "pages": len(entry.pages),
        }
        for entry in night.entries
    ]
    machine = facts.get("machine", {})
    return record.Night(
        started=night.started,
        ended=night.ended,
        commit=night.commit or "",
        word=night.verdict.partition(":")[0],
        verdict=night.verdict,
        machine=", ".join([str(machine.get("cpu", "unknown")), *facts.get("gpus", ())]),
        parts=parts,
        **{**record.about({entry.name: result for entry, result in found}), "subject": config.subject}
        | {"setting": setting},
    )
