"""What the subject is to be held against: the vendor's files and their environment, recordings, Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.doctor.finding import Finding, Level, Wanted, needed
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import count, listed
from pytest_dsocr.reference import opening
from pytest_dsocr.reference.anchors import read_anchors
from pytest_dsocr.reference.drift import drifts, read_json
from pytest_dsocr.reference.environment import find_environment
from pytest_dsocr.reference.goldens import anchors_file, recording_places
from pytest_dsocr.reference.inspection import load_in
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.recording import recordings_of

UNREADABLE = "not looked up, for the weights cannot be read"


def vendor(wanted: Wanted) -> Iterator[Finding]:
    """Hold the vendor's files to the anchors, as ``dsocr vendor inspect`` does."""
    folder = wanted.vendor
    if folder is None:
        yield Finding("vendor", Level.NOTE, "its files are not given, so that nothing runs live", "--reference=FOLDER")
        return
    found, expected = read_anchors(folder), read_json(anchors_file())
    if drifted := drifts(expected, found):
        told = f"{count(len(drifted), 'anchor')} drifted: {listed([one.anchor for one in drifted])}"
        yield Finding("vendor", Level.FAULT, told, f"see what that affects: dsocr watch-vendor {folder}")
    elif changed := [name for name, file in found.files.items() if file.sha256 != expected.files[name].sha256]:
        told = f"{', '.join(changed)} differs in comments or layout, and recordings are of another one"
        yield Finding("vendor", Level.NOTE, told, f"see which: dsocr watch-vendor {folder}")
    else:
        yield Finding(
            "vendor", Level.OK, f"{count(len(found.files), 'file')} in {folder}, {len(found.symbols)} anchors"
        )


def environment(wanted: Wanted) -> Iterator[Finding]:
    """Find the vendor's environment, and import the vendor's files in it."""
    try:
        python = find_environment(wanted.vendor_env)
    except DsocrError as error:
        yield Finding("vendor's env", needed(wanted.vendor is not None), str(error))
        return
    if wanted.vendor is None:
        yield Finding("vendor's env", Level.OK, str(python))
        return
    loaded = load_in(python, wanted.vendor)
    if loaded.fault:
        todo = f"make it again: dsocr vendor setup {wanted.vendor}"
        yield Finding("vendor's env", Level.FAULT, f"{python} cannot import the files: {loaded.fault}", todo)
    else:
        told = f"{python}, transformers {loaded.versions.get('transformers')}; it imports the files"
        yield Finding("vendor's env", Level.OK, told)


def recordings(wanted: Wanted) -> Iterator[Finding]:
    """Open the recording of this checkpoint and key, every byte of it, or the nearest."""
    level = needed(wanted.needs_recording)
    checkpoint = _checkpoint(wanted)
    if checkpoint is None:
        yield Finding("recordings", level, UNREADABLE)
        return
    try:
        key = opening.Wanted(checkpoint, wanted.device, wanted.dtype, wanted.attention, frozenset())
        if wanted.needs_recording and isinstance(wanted.reference, Path):
            found = opening.open_reference(wanted.reference, key)
        else:
            found = opening.open_recorded(recording_places(wanted.golden), key)
    except DsocrError as error:
        yield Finding("recordings", level, str(error))
        return
    except (RuntimeError, AssertionError) as error:  # torch knows no such device
        yield Finding("recordings", level, f"no GPU to look them up by ({error})", "see what is said of torch")
        return
    assert not isinstance(found, LiveReference)
    told = f"{count(len(found.recording.cases), 'case')} in {found.recording.folder}, of {found.provenance.date}"
    if found.stands_in:
        yield Finding("recordings", Level.NOTE, f"{told}: {found.stands_in}", "make one with: dsocr vendor record")
    else:
        yield Finding("recordings", Level.OK, told)


def pillow(wanted: Wanted) -> Iterator[Finding]:
    """Tell whether the installed Pillow resizes as that of a recording of these weights did."""
    version, checkpoint = metadata.version("pillow"), _checkpoint(wanted)
    sha256 = checkpoint.sha256 if checkpoint else ""
    made = [one for place in recording_places(wanted.golden) for one in recordings_of(place, sha256)]
    like = [one for one in made if one.resampling == resampling()]
    if like:
        told = f"{version}, which resizes as in {count(len(like), 'recording')} of these weights ({resampling()})"
        yield Finding("pillow", Level.OK, told)
    elif made:
        theirs = sorted({one.versions.get("pillow", "unknown") for one in made})
        told = f"{version}, which resizes otherwise than {' and '.join(theirs)}, that the recordings were made with"
        yield Finding("pillow", needed(wanted.needs_recording), told, f"pip install 'pillow=={theirs[-1]}'")
    else:
        yield Finding("pillow", Level.NOTE, f"{version} ({resampling()}); there is no recording to hold it to")


def _checkpoint(wanted: Wanted) -> Checkpoint | None:
    """Give it; None where it cannot be read, which the check of the weights tells."""
    try:
        found = resolve(wanted.checkpoint)
        return found if found.sha256 else None
    except DsocrError:
        return None
