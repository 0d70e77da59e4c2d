"""What a change of the vendor's files affects: recordings, by the hashes that they state, and suites, by anchor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.reference.anchors.anchors import CONTRACT, read_anchors
from pytest_dsocr.reference.anchors.drift import Drift, drifts, read_json
from pytest_dsocr.reference.goldens import ANCHORS

EVERY = ("contract", "parity", "cache", "checkpoint", "perf", "cost", "reference")
SUITES: Mapping[str, tuple[str, ...]] = {
    "tokenizer": ("contract", "parity", "checkpoint", "reference"),
    "sam": ("parity", "checkpoint", "perf", "cost", "reference"),
    "clip": ("parity", "checkpoint", "perf", "cost", "reference"),
    "projector": ("parity", "checkpoint", "perf", "cost", "reference"),
    "vision_fusion": ("parity", "cache", "checkpoint", "perf", "cost", "reference"),
    "prefill": ("parity", "cache", "checkpoint", "perf", "cost", "reference"),
    "decode": ("contract", "parity", "cache", "checkpoint", "perf", "cost", "reference"),
    "postprocess": ("parity", "checkpoint", "reference"),
}
"""By stage of an anchor, the suites that hold a subject to what stands there."""
STAGE_OF = {symbol: stage for stage, symbols in CONTRACT.items() for symbol in symbols}


class _Made(TypedDict):
    vendor_sha256: dict[str, str]


class _Recorded(TypedDict, total=False):
    made: list[_Made]
    provenance: _Made


RECORDED = Format(_Recorded, "it does not say what it was made from: get the file again")


@dataclass(frozen=True)
class Stale:
    """Something recorded from other files of the vendor's."""

    path: Path
    files: tuple[str, ...]
    """Those that differ from the ones it was made with."""


@dataclass(frozen=True)
class Change:
    """The vendor's files in a folder against those that this project was written against."""

    folder: Path
    anchors: Path
    files: tuple[str, ...]
    """Those whose bytes differ."""
    drifted: tuple[Drift, ...]
    stale: tuple[Stale, ...]
    current: tuple[Path, ...]
    """What was recorded from just these files."""

    @property
    def is_none(self) -> bool:
        """Whether nothing differs."""
        return not (self.files or self.drifted or self.stale)

    @property
    def suites(self) -> dict[str, list[str]]:
        """By suite, the anchors for which it may say something else now."""
        found: dict[str, list[str]] = {}
        for drift in self.drifted:
            for suite in suites_of(drift.anchor):
                found.setdefault(suite, []).append(drift.anchor)
        return {suite: found[suite] for suite in EVERY if suite in found}


def suites_of(anchor: str) -> tuple[str, ...]:
    """Give the suites that an anchor affects; what is in no anchor may affect every one."""
    return SUITES[STAGE_OF[anchor]] if anchor in STAGE_OF else EVERY


def change_of(folder: Path, anchors: Path, recordings: Sequence[Path]) -> Change:
    """Hold the vendor's files in ``folder`` to the file of ``anchors``, and to each of the folders of recordings.

    Raises:
        DsocrError: where files are missing or are not Python, or the anchors or a recording cannot be read.
    """
    found, expected = read_anchors(folder), read_json(anchors)
    here = {name: file.sha256 for name, file in found.files.items()}
    made = {path: files for place in recordings for path, files in _made_from(place)}
    differing = {
        path: tuple(name for name in here if any(one.get(name, here[name]) != here[name] for one in files))
        for path, files in made.items()
    }
    return Change(
        folder,
        anchors,
        tuple(name for name, sha256 in here.items() if expected.files[name].sha256 != sha256),
        tuple(drifts(expected, found)),
        tuple(Stale(path, names) for path, names in differing.items() if names),
        tuple(path for path, names in differing.items() if not names),
    )


def _made_from(place: Path) -> Iterator[tuple[Path, list[Mapping[str, str]]]]:
    """Yield what was recorded, and the hashes of the vendor's files that each part of it was made from, by name."""
    for path in sorted((*place.glob("*.json"), *place.glob("*/*.json"), *place.glob("*/[!.]*/manifest.json"))):
        if path.name != ANCHORS:
            found = RECORDED.read(path)
            if not (found.get("made") or "provenance" in found):
                raise RECORDED.fault(path, "holds neither made nor provenance")
            made = found.get("made") or [found["provenance"]]
            yield path, [one["vendor_sha256"] for one in made if one["vendor_sha256"]]
