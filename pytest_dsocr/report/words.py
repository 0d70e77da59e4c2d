"""Phrases that several reports share: counts, the two sides, and the command to type next."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pytest_dsocr.base.own_files import own_folders
from pytest_dsocr.base.words import HASH_CHARACTERS, PACKAGE, count, in_shell, relative_path
from pytest_dsocr.compare.readings import SURE, excluded
from pytest_dsocr.compare.verdict import SEVERITY, Verdict

if TYPE_CHECKING:
    from pytest_dsocr.report.case_result import CaseResult
    from pytest_dsocr.report.result import RunResult
    from pytest_dsocr.report.run_sides import RunSides


BY_ENGINE = "by the engine, equal to the vendor's code where recorded"
"""Added to every verdict for which the engine answered for the reference."""


def counts(by_verdict: Mapping[str, int], worst_drift: float = 0.0, where: str = "") -> str:
    """Return ``1 WRONG, 4 DRIFT, 10 MATCH; 2 not made``, the gravest first.

    Args:
        worst_drift: largest relative error of a DRIFT, shown unless it is 0.
        where: source of that error.
    """
    names = {str(verdict): str(verdict) for verdict in SEVERITY[::-1]}
    if worst_drift:
        names[Verdict.DRIFT] += f" within {worst_drift:.1e}{where and f' ({where})'}"
    not_made = by_verdict.get(names.pop(Verdict.NOT_COMPARED), 0)
    made = ", ".join(f"{by_verdict[verdict]} {name}" for verdict, name in names.items() if by_verdict.get(verdict))
    return "; ".join(part for part in (made, f"{not_made} not made" if not_made else "") if part)


def first_wrong(what: str, right_before: int) -> str:
    """Return the first WRONG comparison, and the number of passed comparisons before it."""
    return (
        f"{what}, after {count(right_before, 'comparison')} that passed"
        if right_before
        else f"{what}, the first that was compared"
    )


def reference_in_words(run: RunSides) -> str:
    """Return the kind of the reference, its key, and its version of the vendor's files."""
    made = run.provenance
    if run.reference == "engine":
        held = f"{relative_path(run.where)} answers for its own cases" if run.where else "no recording has this key"
        return f"{BY_ENGINE}, {run.key} ({held})"
    how = f"recorded on {made.date}" if run.reference == "recorded" else "live"
    main_file = next(iter(made.vendor_sha256.values()), "unknown")[:HASH_CHARACTERS]
    nearest = f", {run.nearest}" if run.nearest else ""
    return f"{how}{nearest}, {run.key}, vendor's file {main_file} ({relative_path(run.where)})"


def by_engine(cases: Sequence[CaseResult]) -> str:
    """Return for how many cases the engine was the reference; empty for none."""
    number = sum(case.by_engine for case in cases)
    some = f"{number} of {count(len(cases), 'case')} " if number < len(cases) else ""
    return f", {some}{BY_ENGINE}" if number else ""


def first_token_in_words(cases: Sequence[CaseResult]) -> str:
    """Return the time to the first text of a subject that streams; empty for other subjects."""
    took = [one.first_token_ms for one in cases if isinstance(one.first_token_ms, int | float)]
    if not took:
        return ""
    return f"{median(took):.0f} ms in the median of {count(len(took), 'case')}, {max(took):.0f} ms at most"


def compression_of(cases: Sequence[CaseResult]) -> dict[str, int | float] | None:
    """Return vision tokens per page and text tokens per vision token; None if no case counts them."""
    counted = [one.compression for one in cases if one.compression]
    if not counted:
        return None
    vision, text = sum(one.vision_tokens for one in counted), sum(one.text_tokens for one in counted)
    found = {"vision_tokens_per_page": vision / len(counted), "text_tokens_per_vision_token": text / vision}
    return {"cases": len(counted), **found}


def compression_in_words(cases: Sequence[CaseResult]) -> str:
    """Return :func:`compression_of` in one line; empty if no case counts tokens."""
    found = compression_of(cases)
    if found is None:
        return ""
    page, ratio = found["vision_tokens_per_page"], found["text_tokens_per_vision_token"]
    number = count(int(found["cases"]), "case")
    return f"{page:.0f} vision tokens a page, {ratio:.2f} text tokens of the reference for each, in {number}"


def readings_in_words(cases: Sequence[CaseResult]) -> str:
    """Return the number of readings and of wrong ones; empty if each page was read once."""
    counted = [one.readings for one in cases if one.readings]
    made, wrong = sum(len(one.after) for one in counted), sum(len(one.failing) for one in counted)
    if not counted:
        return ""
    rate = f"a fault in one of {excluded(made):.3g} readings would show up with a probability of {SURE:.0%}"
    found = f"{wrong} of them wrong" if wrong else f"none of them wrong: {rate}"
    return f"{made} of {count(len(counted), 'case')}, {found}"


def subject_in_words(run: RunSides) -> str:
    """Return the subject, its level, checkpoint, device, dtype and attention."""
    made = f"{run.checkpoint}/{run.device}-{run.dtype}-{run.attention}"
    return ", ".join([run.subject, *([run.level] if run.level else []), made])


SUITES = "pytest_dsocr.suites"
SAFE_PATH = "-P"
"""Option of Python: do not import a checkout in the working directory instead of the installation."""
OWN, VENDOR = "package.module:factory", "path/to/vendor"
SHIPPED_SUBJECT = "engine"
OF_RECORD = ("checkpoint", "device", "dtype", "attention")
"""The fields of a provenance that are options of ``dsocr vendor record``."""
ON_REQUEST = ("perf", "cost")
"""Suites that measure, and run only on request."""
SHIPPED = PACKAGE / "pages" / "files"
OURS, NAMED, NO_TEXTS = "--dsocr-", "pages=", "--tb=no"
ADDED = re.compile(
    r"-p(dsocr|pytest_dsocr\.plugin\.hooks|no:randomly|no:cacheprovider|syrupy|xdist)|--pyargs|--dsocr-out=dsocr-out"
    r"|-c/dev/null|--(rootdir|confcutdir)=.*suites"
)
"""Words that ``dsocr compare`` and ``dsocr port`` add themselves."""
PLACED = re.compile(r"--dsocr-out=.*")
"""Option that names a place on this machine and changes no result."""
KEYWORD = re.compile(r"[\w:+.\[\]\\/-]+")
"""A single word of pytest's ``-k``."""
FIRST = "parity"
"""Suite that runs first, as it compares whole pages."""


def suites(left_out: Container[str]) -> list[str]:
    """Return pytest's arguments for the suites of the installation or checkout, except some."""
    found = [init.parent for init in suites_folder().glob("*/__init__.py") if init.parent.name not in left_out]
    found.sort(key=lambda suite: (suite.name != FIRST, suite.name))
    is_installed = suites_folder().parent == PACKAGE
    return ["--pyargs", *(f"{SUITES}.{one.name}" for one in found)] if is_installed else [*map(str, found)]


def suites_folder() -> Path:
    """Return the folder of the suites, in the installation or in the checkout."""
    return own_folders()[1]


def rerun(nodeid: str, options: Sequence[str] = (), root: Path | None = None) -> str:
    """Return the shell command that runs a test again, with the run's options; its id is relative to ``root``."""
    file, *names = nodeid.split("::")
    if is_of_suites([nodeid], options, root):
        return in_shell(again(options, names[-1]))
    if "--pyargs" in options:  # there, an id begins inside the package
        return in_shell(["pytest", SUITES, *options, "-k", names[-1]])
    return in_shell(["pytest", "::".join((os.path.relpath(root / file) if root else file, *names)), *options])


def is_of_suites(nodeids: Sequence[str], options: Sequence[str], root: Path | None) -> bool:
    """Return whether all tests are of suites that ``dsocr compare`` runs without being asked for times."""
    files = [(root or Path()) / nodeid.partition("::")[0] for nodeid in nodeids]
    ours = "--pyargs" in options or all(file.parent.parent == suites_folder() for file in files)
    return bool(files) and ours and not any(file.parent.name in ON_REQUEST for file in files)


def reproduced_by(nodeids: Sequence[str], options: Sequence[str], named: Sequence[str], root: Path | None) -> list[str]:
    """Return the ``dsocr compare`` command that makes a run again; empty if other tests took part.

    Args:
        named: the tests or folders that pytest was given.
        root: folder of the tests' ids.
    """
    if not is_of_suites(nodeids, options, root):
        return []
    found = again([word for word in options if not PLACED.fullmatch(word)])
    folder = suites_folder().parent
    if {*suites(ON_REQUEST)} - {"--pyargs", *named}:
        paths = [Path(one) for one in named]
        shown = [path.relative_to(folder) if path.is_relative_to(folder) else path for path in paths]
        at = found.index("--") if "--" in found else len(found)
        found[at:at] = [f"--tests={path.as_posix()}" for path in shown]
    return found


def again(options: Sequence[str], test: str = "") -> list[str]:
    """Return the ``dsocr compare`` command with a run's options, for one test of the suites or for all."""
    typed = [word for word in options if not ADDED.fullmatch(word)]
    ours = [word.removeprefix(OURS) for word in typed if word.startswith(OURS)]
    pages = [word.removeprefix(NAMED) for word in ours if word.startswith(NAMED)]
    stem = test.partition("[")[2].partition("-")[0]
    if stem.isidentifier() and any(SHIPPED.glob(f"*/{stem}.png")) and not any(Path(page).exists() for page in pages):
        pages = [stem]
    of_pytest = [word for word in typed if not word.startswith(OURS)]
    if test:
        keyword = test if KEYWORD.fullmatch(test) else test.partition("[")[0]
        of_pytest = [*without_keyword(of_pytest), "-k", keyword]
    others = [f"--{word}" for word in ours if not word.startswith(NAMED)]
    return ["dsocr", "compare", *pages, *others, *(["--"] if of_pytest else []), *of_pytest]


def without_keyword(options: Sequence[str]) -> list[str]:
    """Return pytest's options without its ``-k``, of which the last one counts."""
    return [one for before, one in pairwise(("", *options)) if before != "-k" and not one.startswith("-k")]


def record(run: RunSides | None) -> str:
    """Return the command that records what the reference lacks."""
    words = ["dsocr", "vendor", "record", VENDOR]
    if run is None:
        return in_shell([*words, "PAGES"])
    made = [f"--{name}={getattr(run.provenance, name)}" for name in OF_RECORD]
    return in_shell([*words, *run.pages, "--presets", *run.presets, "--prompts", *run.prompts, *made])


def following(result: RunResult, options: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield commands that a user may want next, each after its reason."""

    def with_option(option: str) -> str:
        if is_of_suites([*result.tests], options, result.root):
            return in_shell(again([*options, option]))
        return f"{result.identity.command} {option}"

    by_engine = result.run is not None and result.run.reference == "engine"  # which was there for what is missing
    missing = any(one.what == "recording" and not (by_engine and one.allowed) for one in result.missing)
    if missing and not result.counts.get(Verdict.WRONG):
        yield "to record what is missing, with the vendor's files", record(result.run)
        if result.run and result.run.reference == "recorded" and result.run.subject != SHIPPED_SUBJECT:
            yield "or, without them, to let the engine stand in", with_option("--dsocr-reference=engine")
    elif result.failing:
        first = next(test for one in result.causes for test in one.tests)
        if result.tests[first].sent.cause is None or NO_TEXTS in options:  # otherwise its own text has the command
            yield "to run the first failing test again", rerun(first, options, result.root)
    elif result.run and result.run.subject == SHIPPED_SUBJECT:
        yield "to test an implementation of your own", with_option(f"--dsocr-subject={OWN}")
    elif result.run and result.run.reference in ("recorded", "engine"):
        yield "to compare with the vendor's code, live", with_option(f"--dsocr-reference={VENDOR}")
