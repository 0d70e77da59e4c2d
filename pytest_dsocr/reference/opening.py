"""From what a user names to a reference: the vendor's files, a recording, or a folder of recordings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import Checkpoint
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.records.provenance import RecordingKey, device_class
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.environment import family_in, family_with, find_environment
from pytest_dsocr.reference.goldens import anchors_of
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.nearest import WAYS
from pytest_dsocr.reference.protocol import OnProgress
from pytest_dsocr.reference.recording import MANIFEST, RecordedReference, Recording, find_recordings


@dataclass(frozen=True)
class WantedReference:
    """The checkpoint and the key of the reference to open."""

    checkpoint: Checkpoint
    device: str = "cpu"
    """As torch calls it, or the name of a kind of device that a recording was made on, such as ``nvidia-h200``."""
    dtype: str = "float32"
    attention: str = "eager"
    fixed: frozenset[str] = frozenset(WAYS)
    """In which of these only a recording of just this serves; in the others the nearest does, where there is none."""

    @property
    def key(self) -> RecordingKey:
        """What a recording of it is looked up by; reads the checkpoint, for its hash."""
        device = device_class(self.device) if self.device.startswith("cuda") else self.device
        return RecordingKey(self.checkpoint.label, device, self.dtype, self.attention, self.checkpoint.sha256)


def open_reference(
    where: Path,
    wanted: WantedReference,
    *,
    env: Path | None = None,
    time_limit_s: float = 600,
    keep_files: bool = False,
    start_limit_s: float = START_LIMIT_S,
    on_progress: OnProgress | None = None,
) -> LiveReference | RecordedReference:
    """Open the reference that ``where`` names; a live one starts with its first request.

    Args:
        where: a folder with the vendor's Python files, a recording, or a folder of recordings.
        wanted: its checkpoint and key; one recording that is named has its own key.
        env: the environment of the vendor's code, for a live one; see ``find_environment``.
        time_limit_s: for a live one, the longest without a sign of progress.
        keep_files: of a live one, keep the files that the vendor's ``infer`` writes.
        start_limit_s: the same while it starts and loads.
        on_progress: for a live one, called with its progress.

    Raises:
        DsocrError: where there is nothing of the kind.
        ReferenceFaultError: where the recording is damaged, of another checkpoint, stale, or not there.
    """
    if family_in(where):
        return LiveReference(
            where,
            wanted.checkpoint.name,
            python=find_environment(env),
            device=wanted.device,
            dtype=wanted.dtype,
            attention=wanted.attention,
            time_limit_s=time_limit_s,
            keep_files=keep_files,
            start_limit_s=start_limit_s,
            on_progress=on_progress,
        )
    if not where.is_dir():
        raise DsocrError(f"there is no folder {where}; give one with the vendor's Python files, or with recordings")
    if (where / MANIFEST).is_file():
        return _recorded(replace(wanted, fixed=WantedReference.fixed), Recording.open(where))
    return open_recorded([where], wanted)


def open_recorded(places: Sequence[Path], wanted: WantedReference) -> RecordedReference:
    """Open the recording of this key in the first folder of recordings that holds one, or else the nearest.

    Cases that it lacks are looked up in those of the folders behind it, if they were made from the same of the vendor's
    files.

    Raises:
        ReferenceFaultError: where there is none, or one is damaged or stale.
    """
    first, *others = find_recordings(places, wanted.key, resampling(), wanted.fixed)
    files = first.provenance.vendor_sha256
    return _recorded(wanted, first, [other for other in others if other.provenance.vendor_sha256 == files])


def _recorded(wanted: WantedReference, recording: Recording, behind: Sequence[Recording] = ()) -> RecordedReference:
    return RecordedReference(
        recording,
        behind,
        checkpoint_sha256=wanted.checkpoint.sha256,
        vendor_sha256=pinned(recording.folder.resolve().parents[1], recording.provenance.vendor_sha256),
        wanted=None if {*WAYS} <= wanted.fixed else wanted.key,
        tokenizer=lambda: wanted.checkpoint.tokenizer,
    )


def pinned(golden: Path, files: Collection[str] = ()) -> Mapping[str, str] | None:
    """Return the hashes that a folder of recordings pins of the vendor's files of these names, where it does."""
    if not files:  # of a recording that no vendor's code made
        return None
    path = anchors_of(golden, family_with(files))
    return {name: file.sha256 for name, file in read_json(path).files.items()} if path.is_file() else None
