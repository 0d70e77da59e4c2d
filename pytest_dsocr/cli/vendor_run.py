"""``dsocr vendor run``: what the vendor's own ``infer`` makes of pages, as files to keep: the ground truth."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from pytest_dsocr.cli.vendor_record import Progress, found_by, line_of, live_reference
from pytest_dsocr.contract.artifacts import OURS
from pytest_dsocr.contract.image import image_size
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import seal, write_whole
from pytest_dsocr.foundation.words import count
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.report.exit_status import EXIT_STATUS, Ending
from pytest_dsocr.report.side_files import info_of, is_kept, made_anew

MACHINE = EXIT_STATUS[Ending.INFRASTRUCTURE]


def run(options: Namespace) -> Iterator[str]:
    """Read every page that is not read yet, and yield what to tell the user.

    Raises:
        DsocrError: on a bad option; after all other pages, with the status 10, where one could not be read.
    """
    found = found_by(options).readable()
    made_anew(options.out / ".partial").rmdir()  # a folder that cannot be written is refused before anything is loaded
    options.status = MACHINE
    failed = [f"{page.path}: {page.why}" for page in found.bad]
    yield from (f"left out    {why}" for why in failed)
    with Progress() as progress, live_reference(options, progress) as reference:
        made = reference.provenance
        missing = [case for case in found.good if options.again or not is_kept(options.out / case.id, case, made)]
        yield f"reference   {made.checkpoint}, {made.device}, {made.dtype}, {made.attention}"
        yield f"pages       {options.out}: {len(found.good) - len(missing)} of {len(found.good)} are there"
        progress.bar.reset(total=len(missing))
        for case in missing:
            progress.case_id, started_s = case.id, monotonic()
            try:
                seen = _keep(case, reference, options.out)
                told = line_of(case, seen, monotonic() - started_s)
            except DsocrError as error:
                failed.append(case.id)
                told = f"failed      {case.id}: {error}"
            progress.bar.clear()
            yield told
            progress.bar.update()
    if failed:
        raise DsocrError(f"{count(len(failed), 'case')} could not be read, as is said above; the others are there")
    options.status = 0


def _keep(case: Case, reference: LiveReference, out: Path) -> Observation:
    """Have a case read; its folder appears whole, or the one before stays."""
    home, work = out / case.id, made_anew(out / f".{case.id}.partial")
    started_s = monotonic()
    try:
        seen = reference.observe(case, out=work)
        info = info_of(case, seen, image_size(case.page), monotonic() - started_s)
        write_whole(work / OURS, seal(info))
        made_anew(home).rmdir()
        work.rename(home)
    except OSError as error:
        raise DsocrError(f"{home} cannot be written ({error.strerror}); make room, or give another --out") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return seen
