"""Recordings of the vendor's code: folders of cases with a manifest of hashes, which are verified when opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from pytest_dsocr.base.files import sha256
from pytest_dsocr.base.reading import Count, FileName
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import SHOWN_OF_CHECKPOINT, Provenance, RecordingKey, is_by_engine, versions
from pytest_dsocr.records.reference_result import InputsDigest, ReferenceResult
from pytest_dsocr.reference.goldens import MANIFEST
from pytest_dsocr.reference.nearest import (
    WAYS,
    distance,
    key_traits,
    nearest,
    options_to_leave_out,
    other_pillow,
    pixels_apart,
)
from pytest_dsocr.reference.protocol import NoRecordingError, NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded_case import (
    CEILING,
    Described,
    RecordedCase,
    case_files,
    fault,
    read_recorded,
    recorded,
    traits,
    up_to,
)


class _File(TypedDict):
    bytes: Count
    sha256: str


class _Entry(TypedDict):
    case: Described
    files: dict[FileName, _File]


class _Manifest(TypedDict):
    format: Literal[1]
    provenance: Provenance
    cases: dict[FileName, _Entry]


MANIFESTS = recorded(_Manifest)


@dataclass(frozen=True, eq=False)
class Recording:
    """A verified recording."""

    folder: Path
    provenance: Provenance
    """Provenance of all cases; each case has its own date and command."""
    cases: Mapping[str, RecordedCase]
    """Cases by id, sorted."""

    @classmethod
    def open(cls, folder: Path) -> Recording:
        """Read and verify a recording.

        Raises:
            ReferenceFaultError: if a file is missing, unknown or damaged, or the folder has another recording's name.
        """
        manifest = _read_manifest(folder)
        provenance = Provenance.from_json(manifest["provenance"])  # type: ignore[arg-type]
        entries = manifest["cases"]
        _check_names(folder, {MANIFEST}.union(*(entry["files"] for entry in entries.values())))
        cases = {case_id: _read_listed(folder / f"{case_id}.json", entry) for case_id, entry in entries.items()}
        for case_id, case in cases.items():
            if case.described != entries[case_id]["case"] or case.origin.differences(provenance):
                raise fault(folder / f"{case_id}.json", f"differs from {MANIFEST} in its case or provenance")
        _check_place(folder, provenance)
        return cls(folder, provenance, cases)


def folder_names(provenance: Provenance) -> list[Path]:
    """Return the possible places in a folder of recordings, the preferred one first.

    The others are for a key with another recording, made with a Pillow that resizes differently.
    """
    home, pillow = Path(str(provenance.key)), provenance.versions.get("pillow", "none").split(".")[0]
    endings = ("", f"-pillow-{pillow}", f"-resampling-{provenance.resampling}")
    return [home.with_name(home.name + ending) for ending in endings]


def find_recordings(
    places: Sequence[Path], key: RecordingKey, resampling: str, fixed: Collection[str] = WAYS
) -> list[Recording]:
    """Find and verify the recordings of ``key``, or else the nearest ones of the same weights.

    Args:
        places: folders of recordings, each with at most one for a key and a fingerprint of resampling.
        key: the wanted key; weights are compared by content, not by name.
        resampling: fingerprint of the installed Pillow, see :func:`pytest_dsocr.contract.image.resampling`.
        fixed: those of :data:`~pytest_dsocr.reference.nearest.WAYS` that must be equal to ``key``.

    Returns:
        One or more recordings of one key, in the order of ``places``.

    Raises:
        NoRecordingError: if there is none.
        ReferenceFaultError: if there are two in one place, or one is damaged.
    """
    faults: dict[Path, list[ReferenceFaultError]] = {place: [] for place in places}
    known = {folder: made for place in places for folder, made in _known_in(place, faults[place])}
    far = {
        folder: distance(key, made.key, pixels_apart(made.to_json(), resampling))
        for folder, made in known.items()
        if made.checkpoint_sha256 == key.checkpoint_sha256
        and all(getattr(made, way) == getattr(key, way) for way in fixed)
    }
    least = min(far.values(), default=())
    chosen = min((folder for folder in far if far[folder] == least), key=str, default=None)
    alike = None if chosen is None else (known[chosen].key, known[chosen].resampling)
    matches = sorted((folder for folder in far if (known[folder].key, known[folder].resampling) == alike), key=str)
    is_found = False
    for place in places:
        own = [folder for folder in matches if folder.is_relative_to(place)]
        if len(own) > 1:
            raise ReferenceFaultError(f"{own[0]} and {own[1]} are recordings of the same key; delete one")
        is_found = is_found or (bool(own) and not any(least))
        if faults[place] and not is_found:  # the damaged recording may be of this key
            raise faults[place][0]
    if matches:
        in_order = sorted(matches, key=lambda folder: [folder.is_relative_to(place) for place in places], reverse=True)
        return [Recording.open(folder) for folder in in_order]
    lacking = f"{' and '.join(map(str, places))} hold{'s' * (len(places) == 1)} no recording of {key.in_words}"
    there = nearest(key_traits(key), {f"{f.parent.name}/{f.name}": key_traits(made.key) for f, made in known.items()})
    asked = options_to_leave_out(key, [made.key for made in known.values()], fixed)
    other = f"leave out {asked}, and the nearest serves; or " if asked else ""
    raise NoRecordingError(f"{lacking}, {there}; {other}make one with: dsocr vendor record")


def recordings_of(golden: Path, checkpoint_sha256: str) -> list[Provenance]:
    """Return the unverified provenance of each recording in ``golden`` of these weights."""
    return [made for _, made in _known_in(golden, []) if made.checkpoint_sha256 == checkpoint_sha256]


class RecordedReference:
    """A recording as a reference.

    Args:
        recording: searched for cases first.
        behind: recordings of the same key to search next, in this order.
        checkpoint_sha256: hash of the checkpoint under test.
        vendor_sha256: hashes of the vendor's files that the suites were written for, by name.
        wanted: the key of the run, if it is not the recording's.
        tokenizer: loads the checkpoint's tokenizer, which is needed to cut outputs to a lower limit of tokens.

    Raises:
        ReferenceFaultError: if another checkpoint, other files or the engine made the recording.
    """

    def __init__(
        self,
        recording: Recording,
        behind: Sequence[Recording] = (),
        *,
        checkpoint_sha256: str | None = None,
        vendor_sha256: Mapping[str, str] | None = None,
        wanted: RecordingKey | None = None,
        tokenizer: Callable[[], TextTokenizer] | None = None,
    ) -> None:
        made = recording.provenance
        if checkpoint_sha256 not in (None, made.checkpoint_sha256):
            weights = f"{made.checkpoint} of SHA-256 {made.checkpoint_sha256[:SHOWN_OF_CHECKPOINT]}"
            under_test = f"{checkpoint_sha256:.{SHOWN_OF_CHECKPOINT}}"
            raise _unfit(recording, f"was made with {weights}, and the one under test has {under_test}")
        for name, stated in made.vendor_sha256.items():
            if vendor_sha256 is not None and vendor_sha256.get(name) != stated:
                raise _unfit(recording, f"was made with a {name} of SHA-256 {stated[:12]}, which is not the pinned one")
        if is_by_engine(made):
            raise _unfit(recording, "was made by the engine, and not by the vendor's code")
        self.recording, self.behind = recording, tuple(behind)
        self.wanted, self.tokenizer = wanted or made.key, tokenizer

    @property
    def provenance(self) -> Provenance:
        """Provenance of its answers."""
        return self.recording.provenance

    @property
    def stands_in(self) -> str:
        """Reason for using another recording than the wanted one; empty if it is the wanted one."""
        made, wanted = self.provenance, self.wanted
        lacking = [] if made.key == wanted else [f"none is of {wanted.way}"]
        if made.resampling != resampling():
            lacking.append(f"none was made with a Pillow that resizes as the installed {versions().get('pillow')}")
        return f"the nearest recording, as {' and '.join(lacking)}" if lacking else ""

    def observe(self, case: Case) -> ReferenceResult:
        """Return the recorded result for this page's content, prompt and preset, up to the case's limit of tokens.

        Raises:
            NotRecordedError: if there is none, or the installed Pillow makes other pixels from the page.
            ReferenceFaultError: if another page was recorded under this name.
        """
        wanted, folder = traits(case.to_json()), self.recording.folder
        cases = [(case_id, one) for own in (self.recording, *self.behind) for case_id, one in own.cases.items()]
        known: dict[str, Mapping[str, str]] = {}
        for case_id, one in cases:
            found = traits(one.described)
            if {**found, CEILING: ""} == {**wanted, CEILING: ""} and (seen := up_to(one, case, self.tokenizer)):
                self._check_pixels(case, seen)
                return seen
            known.setdefault(case_id, found)
        recorded_pages = {one.described["page"] for _, one in cases}
        if case.page_name in recorded_pages and wanted["page"] not in {found["page"] for found in known.values()}:
            raise ReferenceFaultError(
                f"{case.page} has other pixels than the page recorded under its name in {folder}; "
                "put the recorded page back, or record this one with: dsocr vendor record"
            )
        raise NotRecordedError(
            f"{folder} does not hold {case.id}, {nearest(wanted, known)}; add it with: dsocr vendor record"
        )

    def _check_pixels(self, case: Case, seen: ReferenceResult) -> None:
        """Raise ``NotRecordedError`` if the installed Pillow makes other pixels than were recorded."""
        made = self.provenance
        if made.resampling == resampling():
            return
        prepared = self.tokenizer and case.family.prepare(case.page, case.prompt, case.preset, self.tokenizer())
        if prepared is None or not InputsDigest.of(prepared.tensors).has_pixels_of(seen.inputs):
            raise NotRecordedError(
                f"{self.recording.folder} holds {case.id} with other pixels: {other_pillow(made.versions)}; "
                "or record the page with: dsocr vendor record"
            )

    def close(self) -> None:
        """Do nothing: no file is open."""


def _known_in(golden: Path, faults: list[ReferenceFaultError]) -> Iterator[tuple[Path, Provenance]]:
    """Yield each recording and its provenance; append errors of unreadable ones to ``faults``."""
    for manifest in sorted(golden.glob(f"*/[!.]*/{MANIFEST}")):
        try:
            made: Any = _read_manifest(manifest.parent)["provenance"]
            yield manifest.parent, Provenance.from_json(made)
        except ReferenceFaultError as error:
            faults.append(error)


def _read_manifest(folder: Path) -> _Manifest:
    path = folder / MANIFEST
    manifest = MANIFESTS.read(path)
    for case_id, entry in manifest["cases"].items():
        if tuple(entry["files"]) != case_files(case_id):
            raise fault(path, f"lists other files of {case_id} than {' and '.join(case_files(case_id))}")
    return manifest


def _check_names(folder: Path, listed: Iterable[str]) -> None:
    found = {path.name for path in folder.iterdir()}
    for name in sorted({*listed} - found):
        raise fault(folder / name, f"is missing, and {MANIFEST} lists it")
    for name in sorted(found - {*listed}):
        raise ReferenceFaultError(f"{folder / name} is not part of the recording there; delete it")


def _read_listed(path: Path, entry: _Entry) -> RecordedCase:
    contents = []
    for name, stated in entry["files"].items():
        contents.append(read_recorded(path.with_name(name)))
        if sha256(contents[-1]) != stated["sha256"]:
            raise fault(path.with_name(name), f"is damaged: it does not have the SHA-256 that {MANIFEST} states")
    return RecordedCase.decode(path, *contents)


def _check_place(folder: Path, provenance: Provenance) -> None:
    names, home = folder_names(provenance), folder.resolve()
    if Path(home.parent.name, home.name) not in names:
        raise ReferenceFaultError(
            f"{folder / MANIFEST} is of {provenance.key}, which does not fit its folder; "
            f"move the recording to {names[0]} in the folder of recordings"
        )


def _unfit(recording: Recording, why: str) -> ReferenceFaultError:
    return ReferenceFaultError(
        f"{recording.folder / MANIFEST} {why}; use another recording, or make one with: dsocr vendor record"
    )
