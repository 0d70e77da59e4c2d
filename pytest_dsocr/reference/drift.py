"""Changes of the vendor's files since the anchors were written, and the suites that they affect."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypedDict

from pytest_dsocr.base.reading import Format
from pytest_dsocr.base.words import listed
from pytest_dsocr.models import MODELS, STAGES
from pytest_dsocr.models.spec import ModelSpec, StageKind
from pytest_dsocr.reference.anchors import Anchor, Anchors, read_anchors
from pytest_dsocr.reference.details import Detail
from pytest_dsocr.reference.environment import family_with
from pytest_dsocr.reference.goldens import ANCHORS

NONE = Detail((), ())
ANCHORS_FORMAT = Format(Anchors, "name another file with --anchors, or --write it")


@dataclass(frozen=True)
class Drift:
    """An anchor that changed."""

    anchor: str
    """A symbol of the contract, or ``the rest of FILE`` for code outside of all anchors."""
    place: str
    """Current place, such as ``deepencoder.py:534``, or the former one."""
    changes: tuple[str, ...]

    @property
    def lines(self) -> Iterator[str]:
        """Lines with the anchor and each of its changes."""
        yield f"{self.anchor}, {self.place}"
        yield from (f"  {change}" for change in self.changes)


def drifts(expected: Anchors, found: Anchors) -> list[Drift]:
    """Return the anchors that differ in more than their line numbers."""
    symbols = {**expected.symbols, **found.symbols}
    pairs = ((symbol, expected.symbols.get(symbol), found.symbols.get(symbol)) for symbol in symbols)
    of_symbols = [drift for symbol, was, now in pairs for drift in _of_symbol(symbol, was, now)]
    return of_symbols + [
        Drift(f"the rest of {name}", "outside of every anchor", (_hashes(was.rest, found.files[name].rest),))
        for name, was in expected.files.items()
        if was.rest != found.files[name].rest
    ]


def read_json(path: Path, family: ModelSpec | None = None) -> Anchors:
    """Read a file of anchors of ``family``, or of any.

    Raises:
        DsocrError: if the file is missing or damaged.
    """
    found = ANCHORS_FORMAT.read(path)
    files = (family or family_with(found.files)).vendor.files
    if {*found.files} != {*files}:
        raise ANCHORS_FORMAT.fault(path, f"is of other files than {', '.join(files)}")
    return found


def to_json(anchors: Anchors, provenance: Mapping[str, Any]) -> str:
    """Format anchors as JSON with a line for each."""
    sections = asdict(anchors)
    for symbol in sections["symbols"].values():
        if not symbol["details"]:
            del symbol["details"]
    return one_line_each({"provenance": provenance}, sections)


def one_line_each(head: Mapping[str, Any], sections: Mapping[str, Sequence[Any] | Mapping[str, Any]]) -> str:
    """Format facts as JSON with a line for each row of the sections, for readable diffs."""
    parts = [f'"{name}": {json.dumps(value, indent=1)}' for name, value in head.items()]
    for name, rows in sections.items():
        if isinstance(rows, Mapping):
            lines = [f"{json.dumps(key)}: {json.dumps(row, ensure_ascii=False)}" for key, row in rows.items()]
            parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
        else:
            parts.append(f'"{name}": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _of_symbol(symbol: str, was: Anchor | None, now: Anchor | None) -> Iterator[Drift]:
    if was is None and now is not None:
        yield Drift(symbol, _place(now), ("expected nowhere, and found",))
    if was is not None and now is None:
        yield Drift(symbol, f"{_place(was)} expected", ("expected, and found in none of the files",))
    if was is None or now is None:
        return
    moved = [f"expected in {was.file}, found in {now.file}"] if was.file != now.file else []
    code = [_hashes(was.tree, now.tree)] if was.tree != now.tree else []
    if changes := [*moved, *code, *_of_details(was, now)]:
        yield Drift(symbol, f"{_place(now)} (line {was.line} expected)", tuple(changes))


def _of_details(was: Anchor, now: Anchor) -> Iterator[str]:
    """Yield each detail that differs in more than its line numbers."""
    for name in {**was.details, **now.details}:
        old, new = was.details.get(name, NONE), now.details.get(name, NONE)
        if (old.names, old.tree) != (new.names, new.tree):
            gone, added = [*(Counter(old.names) - Counter(new.names))], [*(Counter(new.names) - Counter(old.names))]
            how = [f"{word} {listed(names, 12)}" for word, names in (("without", gone), ("with", added)) if names]
            yield f"{name}, {new.place(now.file)}: {' and '.join(how) or 'other code of the same names'}"


def _hashes(was: str, now: str) -> str:
    return f"code: {was} expected, {now} found"


def _place(anchor: Anchor) -> str:
    return f"{anchor.file}:{anchor.line}"


EVERY = ("contract", "parity", "cache", "checkpoint", "perf", "cost", "reference", "server")
OF_KIND: Mapping[StageKind, tuple[str, ...]] = {
    "host": ("contract", "parity", "checkpoint", "reference", "server"),
    "view": ("parity", "checkpoint", "perf", "cost", "reference", "server"),
    "fusion": ("parity", "cache", "checkpoint", "perf", "cost", "reference", "server"),
    "prompt": ("parity", "cache", "checkpoint", "perf", "cost", "reference", "server"),
    "step": EVERY,
}
"""Suites that test the code in a stage's anchors, by the kind of the stage."""
SUITES = {stage.name: OF_KIND[stage.kind] for stage in STAGES}
STAGE_OF = {
    symbol: stage
    for family in MODELS.values()
    for stage, symbols in family.vendor.contract.items()
    for symbol in symbols
}


class _Made(TypedDict):
    vendor_sha256: dict[str, str]


class _Recorded(TypedDict):
    provenance: _Made


RECORDED = Format(_Recorded, "it does not name the files that it was made from; get it again")


@dataclass(frozen=True)
class Stale:
    """A file that was recorded from other files of the vendor's."""

    path: Path
    files: tuple[str, ...]
    """Names of the files that differ."""


@dataclass(frozen=True)
class VendorChange:
    """Comparison of the vendor's files in a folder with the anchors and recordings."""

    folder: Path
    anchors: Path
    files: tuple[str, ...]
    """Names of the files with other bytes."""
    drifted: tuple[Drift, ...]
    stale: tuple[Stale, ...]
    current: tuple[Path, ...]
    """Files that were recorded from exactly these files of the vendor's."""

    @property
    def is_none(self) -> bool:
        """Whether nothing differs."""
        return not (self.files or self.drifted or self.stale)

    @property
    def suites(self) -> dict[str, list[str]]:
        """Changed anchors that may change a suite's results, by suite."""
        found: dict[str, list[str]] = {}
        for drift in self.drifted:
            for suite in suites_of(drift.anchor):
                found.setdefault(suite, []).append(drift.anchor)
        return {suite: found[suite] for suite in EVERY if suite in found}


def suites_of(anchor: str) -> tuple[str, ...]:
    """Return the suites that an anchor affects. Code outside of all anchors may affect every suite."""
    return SUITES[STAGE_OF[anchor]] if anchor in STAGE_OF else EVERY


def change_of(folder: Path, anchors: Path, recordings: Sequence[Path]) -> VendorChange:
    """Compare the vendor's files in ``folder`` with a file of anchors and with folders of recordings.

    Raises:
        DsocrError: if files are missing or not Python, or the anchors or a recording cannot be read.
    """
    found = read_anchors(folder)
    expected = read_json(anchors, family_with(found.files))
    here = {name: file.sha256 for name, file in found.files.items()}
    differing = {
        path: tuple(name for name in here if files.get(name, here[name]) != here[name])
        for place in recordings
        for path, files in made_from(place)
        if family_with(files) is family_with(here)
    }
    return VendorChange(
        folder,
        anchors,
        tuple(name for name, sha256 in here.items() if expected.files[name].sha256 != sha256),
        tuple(drifts(expected, found)),
        tuple(Stale(path, names) for path, names in differing.items() if names),
        tuple(path for path, names in differing.items() if not names),
    )


def made_from(place: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield each recorded file in a folder, with the hashes of the vendor's files that it was made from.

    Raises:
        DsocrError: if one cannot be read.
    """
    for path in sorted(chain.from_iterable(map(place.glob, ("*.json", "*/*.json", "*/[!.]*/manifest.json")))):
        if path.name != ANCHORS:
            yield path, RECORDED.read(path)["provenance"]["vendor_sha256"]
