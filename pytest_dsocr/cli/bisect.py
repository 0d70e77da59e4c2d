"""``dsocr bisect``: the first bad commit, each judged by ``dsocr compare`` in a work tree of its own."""

from __future__ import annotations

import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pytest_dsocr.cli import compare
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import HASH_CHARACTERS, fit
from pytest_dsocr.night.bisect import SKIP, Found, Judged, bisect, judged_by
from pytest_dsocr.night.record import STAGES
from pytest_dsocr.perf.candidate import Candidate, opened
from pytest_dsocr.report.exit_status import UNDECIDED
from pytest_dsocr.report.file import read_result

DEFAULT_OUT, LOG = "dsocr-bisect", "output.log"
WHERE = (
    "import importlib.util, sys; found = importlib.util.find_spec(sys.argv[1]); print(found.origin if found else '')"
)
OUTSIDE = ("http:", "https:", "cli:")


def add_run(command: ArgumentParser) -> None:
    """Add the two commits, by what each is judged, and the options of ``dsocr compare``."""
    command.add_argument("good", metavar="GOOD", help="a commit, tag or branch that was right")
    command.add_argument("bad", metavar="BAD", help="a later one that is wrong")
    command.add_argument("--stage", metavar="STAGE", help="judge by this stage alone, such as vision_fusion")
    command.add_argument("--case", metavar="ID", help="judge by this case alone, such as page-gundam-markdown")
    compare.add_run(command)
    command.usage = "dsocr bisect GOOD BAD [PAGES ...] [options] [-- options of pytest's]"


def run(options: Namespace) -> Iterator[str]:
    """Yield each step, and the first bad commit. ``options.status`` becomes 12 where it is one of several.

    Raises:
        DsocrError: where there is no such commit, or the two are not as they are called.
    """
    out = Path(getattr(options, "out", [DEFAULT_OUT])[-1]).absolute()
    subject = getattr(options, "subject", ["session"])[-1]
    if subject.startswith(OUTSIDE):
        raise DsocrError(f"{subject} is no code of a commit; name a subject in Python, as module:factory")
    if options.stage not in (None, *STAGES):
        raise DsocrError(f"--stage={options.stage} is no stage; give one of {', '.join(STAGES)}")
    tests = [f"--tests={Path(test).absolute() if Path(test).exists() else test}" for test in options.tests or ()]
    words = [*compare.words_of(options, whole=True), *tests, *(["--", *options.of_pytest] if options.of_pytest else [])]

    def judge(commit: str) -> Judged:
        return _judged(commit, subject, words, out / commit[:HASH_CHARACTERS], options)

    yield from searched(options, judge, options.good, options.bad)
    yield f"{'written':<16}{out}"


def searched(options: Namespace, judge: Callable[[str], Judged], good: str, bad: str) -> Iterator[str]:
    """Look for the first bad commit; yield each step as it was judged, and the end."""
    search = bisect(good, bad, judge)
    try:
        while True:
            step = next(search)
            yield fit(f"{step.judged.word:<8}{step.commit[:HASH_CHARACTERS]}  {step.subject}")
            yield fit(f"{'':<8}{step.judged.why}")
    except StopIteration as end:
        found: Found = end.value
    yield from found.lines()
    options.status = 0 if len(found.first_bad) == 1 else UNDECIDED


def _judged(commit: str, subject: str, words: Sequence[str], out: Path, options: Namespace) -> Judged:
    """Run a commit's own code in a work tree of its own."""
    out.mkdir(parents=True, exist_ok=True)
    with opened(commit) as candidate:
        if why := _not_its_own(candidate, subject):
            return Judged(SKIP, why)
        command = [str(candidate.python), "-P", "-m", "pytest_dsocr", "compare", f"--out={out}", *words]
        with (out / LOG).open("wb") as log:
            status = subprocess.run(
                command, cwd=candidate.folder, env=candidate.environment(), stdout=log, stderr=subprocess.STDOUT
            ).returncode
        try:
            result = read_result(out)
        except DsocrError as error:
            return Judged(SKIP, f"exit status {status}: {error}")
    return judged_by(result, options.stage, options.case)


def _not_its_own(candidate: Candidate, subject: str) -> str:
    """Say why a commit would not be judged: its work tree holds no code of the subject."""
    module = subject.partition(":")[0] if ":" in subject else "pytest_dsocr"
    asked = [str(candidate.python), "-P", "-c", WHERE, module]
    done = subprocess.run(asked, cwd=candidate.folder, env=candidate.environment(), capture_output=True, text=True)
    origin = done.stdout.strip()
    if origin and any(Path(origin).is_relative_to(root) for root in candidate.path):
        return ""
    return f"{module} is no code of this commit" + (f", but of {origin}" if origin else "")
