"""``dsocr vendor setup``: make the environment that the vendor's code needs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from time import monotonic

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.process import progress_bar
from pytest_dsocr.reference.environment import check_vendor_folder, named_folder, plan_here, read_stamp
from pytest_dsocr.reference.installation import is_made, set_up


def run(options: Namespace) -> Iterator[str]:
    """Make the environment, unless it is made already, and yield what to tell the user.

    Raises:
        DsocrError: on a folder without the vendor's files, a folder that setup must not write to, or a failing pip.
    """
    check_vendor_folder(options.vendor)
    if options_of_pip := [name for name in options.extra if name.startswith("-")]:
        raise DsocrError(
            f"--with takes packages, not {options_of_pip[0]}; configure pip by its own variables (PIP_...)"
        )
    plan = plan_here(reuse_torch=options.reuse_torch, extra=tuple(options.extra))
    folder = named_folder(options.env) or plan.folder
    there, started_s = is_made(plan, folder), monotonic()
    yield f"environment {folder}"
    with progress_bar(unit=" packages", desc="setup") as bar:
        for step in set_up(plan, folder):
            if bar.disable:
                yield f"  {step}"
            bar.set_postfix_str(step)
            bar.update()
    if stamp := read_stamp(folder):
        yield "packages    " + ", ".join(f"{name} {version}" for name, version in stamp.versions.items())
        yield "torch       " + (f"reused from {', '.join(plan.torch_from)}" if plan.torch_from else "its own")
        yield f"made        {f'on {stamp.date}; nothing to do' if there else f'in {monotonic() - started_s:.0f} s'}"
    yield f"next        dsocr vendor inspect {options.vendor}"
