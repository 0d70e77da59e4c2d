"""``dsocr doctor``: check whether this machine has everything that a run needs, and say how to fix the rest."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import Any

from pytest_dsocr.base.errors import DsocrError, is_of_machine
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.words import COLUMNS, count
from pytest_dsocr.cli.compare import DEFAULT_OUT
from pytest_dsocr.doctor.finding import ExaminedRun, Finding, Severity
from pytest_dsocr.plugin.option import Option, value_of
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.reference.goldens import golden_folder

AS_TYPED = ("checkpoint", "device", "pages")
"""Options that have their own checks. Their messages say more than a refusal would."""
FORMAT = 1
MARGIN = 23


TAKEN = {option.name: option for option in OPTIONS if option.name in {field.name for field in fields(ExaminedRun)}}
"""Options of ``dsocr compare`` that determine the needs of a run, by name."""


def add_run(command: ArgumentParser) -> None:
    """Add these options, and the file for the findings."""
    for option in TAKEN.values():
        option.add_to(command, DEFAULT_OUT if option.name == "out" else "")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the findings to this file as well")


def run(options: Namespace) -> Iterator[str]:
    """Yield the lines of each finding. The exit status is 1 if anything needed is missing."""
    found: list[Finding] = []
    missing: list[Finding] = []
    for finding in chain(missing, _findings(wanted(options, missing))):
        found.append(finding)
        yield from _lines(finding)
    levels = Counter(one.level for one in found)
    options.status = int(levels[Severity.FAULT] > 0)
    if options.json:
        content = {"format": FORMAT, "passes": not options.status, "findings": [asdict(one) for one in found]}
        write_whole(options.json, json.dumps(content, indent=1) + "\n")
        yield f"{'written':<{MARGIN}}{options.json}"
    yield f"{'not ready' if options.status else 'ready':<{MARGIN}}" + ", ".join(
        f"{levels[one]} {one}" if one is Severity.OK else count(levels[one], one) for one in Severity
    )


def _findings(run: ExaminedRun) -> Iterator[Finding]:
    """Yield the findings of all checks, or only the first package that cannot be imported."""
    try:
        from pytest_dsocr.doctor.machine import examine
    except (ImportError, OSError) as error:  # a torch for other libraries than are here raises either
        name = getattr(error, "name", None) or "packages"
        yield Finding(
            name, Severity.FAULT, f"cannot be imported: {error}", "install pytest-dsocr anew, and torch with it"
        )
        return
    yield from examine(run)


def _lines(finding: Finding) -> Iterator[str]:
    head = f"{finding.level:<7}{finding.check}"
    for k, line in enumerate(wrap(finding.text, COLUMNS - MARGIN, break_long_words=False, break_on_hyphens=False)):
        yield f"{'' if k else head:<{MARGIN}}{line}"


def wanted(options: Namespace, missing: list[Finding]) -> ExaminedRun:
    """Read the options: the command line counts before the environment, then the default.

    If an option names something that does not exist, add it to ``missing`` and examine the option's default.
    """
    values = {}
    for name, option in TAKEN.items():
        try:
            values[name] = _value(option, getattr(options, name, None))
        except DsocrError as error:
            if not is_of_machine(error):
                raise
            values[name] = option.value_if_unset
            missing.append(Finding(name.replace("_", " "), Severity.FAULT, str(error)))
    values["golden"] = values["golden"] or golden_folder()
    values["out"] = values["out"] or Path(DEFAULT_OUT)
    return ExaminedRun(**values)


def _value(option: Option, given: list[str] | None) -> Any:
    own = replace(option, reader="as_typed") if option.name in AS_TYPED else option
    typed = [(option.flag, given if option.many else given[-1])] if given else []
    return value_of(own, [*typed, *option.in_environment()])
