"""Checks of the inputs of a run: weights, pages, the vendor's files, recordings, baselines."""

import shlex
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import count, listed
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.doctor.finding import FAULT, NOTE, OK, ExaminedRun, Finding, needed
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.engine.places import MINI, MINI_IS_FOR, family_named
from pytest_dsocr.pages.named import make_cases
from pytest_dsocr.records.provenance import SHOWN_OF_CHECKPOINT
from pytest_dsocr.reference import opening
from pytest_dsocr.reference.drift import change_of
from pytest_dsocr.reference.environment import check_vendor_folder, find_environment
from pytest_dsocr.reference.goldens import anchors_file, baseline_places, recording_places
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.recording import recordings_of
from pytest_dsocr.timing.baseline import has_any
from pytest_dsocr.timing.identity import machine_name
from pytest_dsocr.timing.probe.machine import machine

ACCEPT = "pytest --pyargs pytest_dsocr.suites.perf"
UNREADABLE = "not searched, because the weights cannot be read"


def weights(wanted: ExaminedRun) -> Iterator[Finding]:
    """Find the checkpoint and hash all of its weights."""
    found = resolve(wanted.checkpoint)
    where = f" in {found.folder}" if found.folder else ", made of a seed"
    purpose = f"; {MINI_IS_FOR}" if wanted.checkpoint == MINI else ""
    yield OK("weights", f"{found.label}, SHA-256 {found.sha256[:SHOWN_OF_CHECKPOINT]}{where}{purpose}")


def pages(wanted: ExaminedRun) -> Iterator[Finding]:
    """Open every page as a run would, and render the pages of PDFs."""
    family = family_named(wanted.checkpoint)
    cases = make_cases(wanted.pages, [family.a_prompt], [family.default_preset], family=family).readable()
    for bad in cases.bad:
        yield FAULT("pages", bad.why)
    if cases.good:
        yield OK("pages", f"{count(len(cases.good), 'page')} can be read: {', '.join(wanted.pages)}")
    elif not cases.bad:
        yield FAULT("pages", f"{', '.join(wanted.pages)} names no page", "name one with --pages")


def vendor(wanted: ExaminedRun) -> Iterator[Finding]:
    """Compare the vendor's files with the anchors, as ``dsocr watch-vendor`` does."""
    folder = wanted.vendor
    if folder is None:
        yield NOTE("vendor", "no folder with its files is given, so it does not run live", "--reference=FOLDER")
        return
    change = change_of(folder, anchors_file(check_vendor_folder(folder)), [])
    if change.drifted:
        message = f"{count(len(change.drifted), 'anchor')} drifted: {listed([one.anchor for one in change.drifted])}"
        yield FAULT("vendor", message, f"see what that affects: dsocr watch-vendor {folder}")
    elif change.files:
        message = f"only comments or layout differ from the recorded files: {', '.join(change.files)}"
        yield NOTE("vendor", message, f"see which: dsocr watch-vendor {folder}")
    else:
        yield OK("vendor", f"the files in {folder} equal those that the anchors describe")


def environment(wanted: ExaminedRun) -> Iterator[Finding]:
    """Find the vendor's environment, and import the vendor's files in it."""
    try:
        python = find_environment(wanted.vendor_env)
    except DsocrError as error:
        yield needed(wanted.vendor is not None)("vendor's env", str(error))
        return
    if wanted.vendor is None:
        yield OK("vendor's env", str(python))
        return
    try:
        with LiveReference(wanted.vendor, wanted.checkpoint, python=python) as reference:
            found = reference.import_code().get("transformers")
    except DsocrError as error:
        yield FAULT("vendor's env", str(error))
    else:
        yield OK("vendor's env", f"{python}, transformers {found}; it can import the files")


def recordings(wanted: ExaminedRun) -> Iterator[Finding]:
    """Open and verify the recording of this checkpoint and key, or the nearest one."""
    level = needed(wanted.needs_recording)
    checkpoint = _checkpoint(wanted)
    if checkpoint is None:
        yield level("recordings", UNREADABLE)
        return
    try:
        key = opening.WantedReference(checkpoint, wanted.device, wanted.dtype, wanted.attention, frozenset())
        if wanted.needs_recording and isinstance(wanted.reference, Path):
            found = opening.open_reference(wanted.reference, key)
        else:
            found = opening.open_recorded(recording_places(wanted.golden), key)
    except DsocrError as error:
        yield level("recordings", str(error))
        return
    except (RuntimeError, AssertionError) as error:  # torch knows no such device
        yield level("recordings", f"no GPU was found ({error})", "see the finding about torch")
        return
    assert not isinstance(found, LiveReference)
    message = f"{count(len(found.recording.cases), 'case')} in {found.recording.folder}, of {found.provenance.date}"
    if found.stands_in:
        yield NOTE("recordings", f"{message}: {found.stands_in}", "make one with: dsocr vendor record")
    else:
        yield OK("recordings", message)


def pillow(wanted: ExaminedRun) -> Iterator[Finding]:
    """Compare how the installed Pillow resizes with the recordings of these weights."""
    version, checkpoint = metadata.version("pillow"), _checkpoint(wanted)
    sha256 = checkpoint.sha256 if checkpoint else ""
    made = [one for place in recording_places(wanted.golden) for one in recordings_of(place, sha256)]
    like = [one for one in made if one.resampling == resampling()]
    if like:
        message = f"{version}, which resizes as in {count(len(like), 'recording')} of these weights ({resampling()})"
        yield OK("pillow", message)
    elif made:
        recorded = sorted({one.versions.get("pillow", "unknown") for one in made})
        message = f"{version}, which resizes differently from {' and '.join(recorded)}, used for the recordings"
        yield needed(wanted.needs_recording)("pillow", message, f"pip install 'pillow=={recorded[-1]}'")
    else:
        yield NOTE("pillow", f"{version} ({resampling()}); there is no recording to compare it with")


def baselines(wanted: ExaminedRun) -> Iterator[Finding]:
    """Search for baselines of this machine; without one, no run is reported as slower."""
    try:
        places, here = baseline_places(wanted.golden), machine(wanted.device)
    except (RuntimeError, AssertionError) as error:  # torch knows no such device
        yield NOTE("baselines", f"no GPU was found ({error})", "see the finding about torch")
        return
    name = machine_name(here)
    if has_any(places, here):
        found = f"found for {name}; the run reports whether one fits its page and setting"
        yield OK("baselines", found)
    else:
        todo = f"accept the times of a run: {accepting(wanted)}"
        yield NOTE("baselines", f"none for {name}, so no run is reported as slower", todo)


def accepting(wanted: ExaminedRun) -> str:
    """Return the command that writes the first baseline of this run."""
    named = {name: str(getattr(wanted, name)) for name in ("checkpoint", "device", "dtype", "attention")}
    named |= {"reference": str(wanted.reference)} if wanted.reference else {}
    options = [f"--dsocr-{name}={value}" for name, value in named.items()]
    return f"{ACCEPT} {shlex.join(options)} --dsocr-baseline-update"


def _checkpoint(wanted: ExaminedRun) -> Checkpoint | None:
    """Return the checkpoint; None if it cannot be read, which :func:`weights` reports."""
    try:
        found = resolve(wanted.checkpoint)
        return found if found.sha256 else None
    except DsocrError:
        return None
