"""What this machine has to judge times by."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.doctor.finding import Finding, Level, Wanted
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.perf.baseline import has_any
from pytest_dsocr.perf.calibration import CALIBRATIONS, FILE_NAME, HOW
from pytest_dsocr.perf.identity import machine_name
from pytest_dsocr.perf.probe.machine import machine
from pytest_dsocr.reference.goldens import baseline_places

ACCEPT = "accept a run's times: pytest --pyargs pytest_dsocr.suites.perf --dsocr-baseline-update"


def baselines(wanted: Wanted) -> Iterator[Finding]:
    """Look for baselines and a calibration of this machine; without any, no run is called slower."""
    try:
        places, here = baseline_places(wanted.golden), machine(wanted.device)
    except (RuntimeError, AssertionError) as error:  # torch knows no such device
        yield Finding("baselines", Level.NOTE, f"no GPU to look them up by ({error})", "see what is said of torch")
        return
    name = machine_name(here)
    if has_any(places, here):
        yield Finding(
            "baselines", Level.OK, f"there are some of {name}; a run says whether one is of its page and setting"
        )
    else:
        yield Finding("baselines", Level.NOTE, f"none of {name}, so that no run is called slower", ACCEPT)
    files = [path for place in places if (path := place / name / FILE_NAME).is_file()]
    if not files:
        yield Finding("calibration", Level.NOTE, f"none of {name}: what a verdict on times is worth is unknown", HOW)
        return
    try:
        found = CALIBRATIONS.read(files[0])
    except DsocrError as error:
        yield Finding("calibration", Level.NOTE, str(error), HOW)
        return
    told = f"of {found.made}: {found.false_alarms} of {found.windows} false alarms ({files[0]})"
    yield Finding("calibration", Level.OK, told)
