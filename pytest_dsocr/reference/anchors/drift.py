"""How the vendor's files in a folder differ from the anchors that were written down, and the file that holds those."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.reference.anchors.anchors import SYMBOLS, Anchor, Anchors
from pytest_dsocr.reference.anchors.syntax import Detail
from pytest_dsocr.reference.vendor_code.files import FILES

ANCHORS = Format(Anchors, "name another file with --anchors, or --write it")


@dataclass(frozen=True)
class Drift:
    """One anchor that is not what it was."""

    anchor: str
    """A symbol of the contract, or ``the rest of FILE``: what is in none of its anchors."""
    place: str
    """Where it is now, such as ``deepencoder.py:534``, or where it was."""
    changes: tuple[str, ...]

    @property
    def lines(self) -> Iterator[str]:
        """The anchor, then its changes, one line each."""
        yield f"{self.anchor}, {self.place}"
        yield from (f"  {change}" for change in self.changes)


def drifts(expected: Anchors, found: Anchors) -> list[Drift]:
    """Find the anchors that differ; the line on which an anchor stands does not count."""
    pairs = ((symbol, expected.symbols.get(symbol), found.symbols.get(symbol)) for symbol in SYMBOLS)
    of_symbols = [drift for symbol, was, now in pairs for drift in _of_symbol(symbol, was, now)]
    return of_symbols + [
        Drift(f"the rest of {name}", "outside of every anchor", (_hashes("code", was.rest, found.files[name].rest),))
        for name, was in expected.files.items()
        if was.rest != found.files[name].rest
    ]


def read_json(path: Path) -> Anchors:
    """Read anchors that were written down.

    Raises:
        DsocrError: where the file is missing or damaged.
    """
    found = ANCHORS.read(path)
    if {*found.files} != {*FILES}:
        raise ANCHORS.fault(path, f"is of other files than {', '.join(FILES)}")
    return found


def to_json(anchors: Anchors, provenance: Mapping[str, Any]) -> str:
    """Lay anchors out as JSON, one line each."""
    files = {name: asdict(file) for name, file in anchors.files.items()}
    symbols = {name: _to_json(anchor) for name, anchor in anchors.symbols.items()}
    sections = {"files": files, "symbols": symbols}
    parts = [f'"provenance": {json.dumps(provenance)}']
    for name, rows in sections.items():
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
        parts.append(f'"{name}": {{\n{lines}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _of_symbol(symbol: str, was: Anchor | None, now: Anchor | None) -> Iterator[Drift]:
    if was is None and now is not None:
        yield Drift(symbol, _place(now), ("expected nowhere, and found",))
    if was is not None and now is None:
        yield Drift(symbol, f"{_place(was)} expected", ("expected, and found in none of the files",))
    if was is None or now is None:
        return
    moved = [f"expected in {was.file}, found in {now.file}"] if was.file != now.file else []
    names = dict.fromkeys([*was.details, *now.details])
    details = [change for name in names for change in _of_detail(name, was.details.get(name), now.details.get(name))]
    code = [_hashes("code", was.tree, now.tree)] if was.tree != now.tree else []
    if changes := moved + details + code:
        yield Drift(symbol, f"{_place(now)} (line {was.line} expected)", tuple(changes))


def _of_detail(name: str, was: Detail | None, now: Detail | None) -> Iterator[str]:
    if was is None or now is None:
        expected, found = (detail and f"line {detail.lines[0]}" for detail in (was, now))
        yield f"{name}: expected {expected or 'nowhere'}, found {found or 'nowhere'}"
        return
    gone = [one for one in was.names if one not in now.names]
    new = [one for one in now.names if one not in was.names]
    where = f"{name}, line {now.lines[0]}" if now.lines else name
    if gone:
        yield f"{where}: {', '.join(gone)} expected, and gone"
    if new:
        yield f"{where}: {', '.join(new)} not expected, and found"
    if was.tree != now.tree:
        yield _hashes(where, was.tree, now.tree)
    elif not gone and not new and was.names != now.names:
        yield f"{where}: {', '.join(was.names)} expected, found {', '.join(now.names)}"


def _hashes(what: str, was: str, now: str) -> str:
    return f"{what}: {was} expected, {now} found"


def _place(anchor: Anchor) -> str:
    return f"{anchor.file}:{anchor.line}"


def _to_json(anchor: Anchor) -> dict[str, Any]:
    details = {
        name: {"lines": detail.lines, "names": detail.names} | ({"tree": detail.tree} if detail.tree else {})
        for name, detail in anchor.details.items()
    }
    value = {"file": anchor.file, "line": anchor.line, "tree": anchor.tree}
    return value | ({"details": details} if details else {})
