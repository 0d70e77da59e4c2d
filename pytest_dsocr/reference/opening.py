"""Opening of references that a user names: the vendor's files, a recording, or a folder of recordings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import Checkpoint
from pytest_dsocr.records.provenance import RecordingKey, device_class
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.environment import family_in, family_with, find_environment
from pytest_dsocr.reference.goldens import MANIFEST, anchors_of
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.nearest import WAYS
from pytest_dsocr.reference.recording import RecordedReference, Recording, find_recordings


@dataclass(frozen=True)
class WantedReference:
    """The checkpoint and the key of the reference to open."""

    checkpoint: Checkpoint
    device: str = "cpu"
    """Torch's name of a device, or the kind of device in a recording's key, such as ``nvidia-h200``."""
    dtype: str = "float32"
    attention: str = "eager"
    fixed: frozenset[str] = frozenset(WAYS)
    """Parts of the key that a recording must equal; in the others, the nearest recording is used if none is equal."""

    @property
    def ways(self) -> dict[str, Any]:
        """The device, the dtype and the attention, by name."""
        return {way: getattr(self, way) for way in WAYS}

    @property
    def key(self) -> RecordingKey:
        """Key to search recordings by; hashes the checkpoint."""
        device = device_class(self.device) if self.device.startswith("cuda") else self.device
        return RecordingKey(self.checkpoint.label, device, self.dtype, self.attention, self.checkpoint.sha256)


def open_reference(
    where: Path, wanted: WantedReference, *, env: Path | None = None, **live: Any
) -> LiveReference | RecordedReference:
    """Open the reference in the folder ``where``; a live one starts with its first request.

    Args:
        where: a folder with the vendor's Python files, a recording, or a folder of recordings.
        wanted: its checkpoint and key; a single recording has its own key.
        env: environment of a live reference, see ``find_environment``.
        **live: limits, ``keep_files`` and ``on_progress`` of :class:`LiveReference`.

    Raises:
        DsocrError: if the folder contains no reference.
        ReferenceFaultError: if the recording is missing, damaged, stale, or of another checkpoint.
    """
    if family_in(where):
        return LiveReference(where, wanted.checkpoint.name, python=find_environment(env), **wanted.ways, **live)
    if not where.is_dir():
        raise DsocrError(f"there is no folder {where}; give one with the vendor's Python files, or with recordings")
    if (where / MANIFEST).is_file():
        return _recorded(replace(wanted, fixed=WantedReference.fixed), Recording.open(where))
    return open_recorded([where], wanted)


def open_recorded(places: Sequence[Path], wanted: WantedReference) -> RecordedReference:
    """Open the recording of this key in the first place that has one, or else the nearest recording.

    Cases that it lacks are searched in later places, if those recordings were made from the same vendor's files.

    Raises:
        ReferenceFaultError: if there is none, or one is damaged or stale.
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
    """Return the hashes of the vendor's files in the anchors of a folder of recordings; None if there are none."""
    if not files:  # no vendor's code made the recording
        return None
    path = anchors_of(golden, family_with(files))
    return {name: file.sha256 for name, file in read_json(path).files.items()} if path.is_file() else None
