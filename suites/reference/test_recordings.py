"""Recordings of a run: complete, from the pinned vendor's files, and usable for this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict, as_expected, equal
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config
from pytest_dsocr.reference.drift import made_from, read_json
from pytest_dsocr.reference.environment import family_with
from pytest_dsocr.reference.goldens import MANIFEST

from .goldens import anchors_of, cases_of, recordings_of

if TYPE_CHECKING:
    from pytest_dsocr.reference.protocol import Reference


def test_every_recording_is_whole(dsocr_config: Config, dsocr_check: Check) -> None:
    """Compare every file with the hash in its manifest, and look for surplus files."""
    folder = recordings_of(dsocr_config)
    dsocr_check(_whole(path.parent, folder) for path in sorted(folder.glob(f"*/[!.]*/{MANIFEST}")))


def test_all_are_made_from_the_pinned_files(dsocr_config: Config, dsocr_check: Check) -> None:
    """Compare the vendor's files of every recording with those of the pinned anchors."""
    folder = recordings_of(dsocr_config)
    dsocr_check(
        equal(
            f"vendor_sha256/{path.relative_to(folder).as_posix()}",
            files,
            _pinned(dsocr_config, files),
            "the pinned files",
        )
        for path, files in made_from(folder)
    )


def test_the_reference_answers_for_this_run(
    request: pytest.FixtureRequest,
    family: ModelSpec,
    dsocr_config: Config,
    dsocr_reference: Reference,
    dsocr_check: Check,
) -> None:
    """Check that the reference was made with this Pillow's resizing, and that a recording has every case.

    If the engine replaces a missing recording, only the recorded cases are checked.
    """
    from pytest_dsocr.contract.image import resampling
    from pytest_dsocr.reference.engine import EngineReference
    from pytest_dsocr.reference.recording import RecordedReference

    reference: Reference | None = dsocr_reference
    cases: Sequence[Case] = cases_of(dsocr_config, family)
    if isinstance(dsocr_reference, EngineReference):
        reference, cases = dsocr_reference.recorded, tuple(filter(dsocr_reference.holds, cases))
    if reference is None or not cases:
        leave_out(request.node, "recording", "no recording holds a case of this run; the engine stands in for all")
    made = reference.provenance
    found = [as_expected("reference/resampling", made.resampling, resampling(), "the resizing of the installed Pillow")]
    if isinstance(reference, RecordedReference):
        answers = [(case.id, reference.observe(case).case_id) for case in cases]
        found += [as_expected(f"reference/{asked}", answered, asked, "as requested") for asked, answered in answers]
    dsocr_check(found)


def _whole(path: Path, folder: Path) -> Comparison:
    from pytest_dsocr.reference.protocol import ReferenceFaultError
    from pytest_dsocr.reference.recording import Recording

    what = f"recording/{path.relative_to(folder).as_posix()}"
    try:
        cases = len(Recording.open(path).cases)
    except ReferenceFaultError as fault:
        return Comparison(what, Verdict.WRONG, str(fault))
    return Comparison(what, Verdict.MATCH if cases else Verdict.WRONG, f"{cases} cases, every byte as recorded")


def _pinned(config: Config, files: Mapping[str, str]) -> dict[str, str]:
    anchors = read_json(anchors_of(config, family_with(files)))
    return {name: file.sha256 for name, file in anchors.files.items()}
