"""``python -m ci.mutants [TARGET ...]``: does a test notice each small change to the code that judges?

Goes on where it was ended: what was tried of unchanged code and tests is not tried again, and what was killed is tried
again only where its file is changed. The result is kept in ``mutants.json`` beside this, with a reason for each
survivor, written by hand; from it ``docs/mutants.md`` is made. The status is 1 where a survivor has no reason.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a forked process has no other thread

from ci.mutants.mutations import Mutant, mutants
from ci.mutants.table import Known, page
from ci.mutants.trial import Outcome, Target, try_all
from ci.mutants.tried import Tried
from pytest_dsocr.foundation.progress import progress_bar
from pytest_dsocr.foundation.sealed import write_whole

ROOT = Path(__file__).parents[2]
KNOWN = Path(__file__).with_name("mutants.json")
PAGE = ROOT / "docs" / "mutants.md"
TRIED = ROOT / ".pytest_cache" / "mutants.jsonl"
TARGETS = (
    Target("compare", "pytest_dsocr/compare", ("tests/compare",)),
    Target("judge", "pytest_dsocr/cases", ("tests/cases",)),
    Target("contract", "pytest_dsocr/contract", ("tests/contract",)),
    Target("kept answers", "pytest_dsocr/reference/answers.py", ("tests/reference/test_answers.py",)),
)


def main(typed: list[str]) -> int:
    """Try what was asked for, and write what is known."""
    asked = _parser().parse_args(typed)
    tried = Tried(TRIED, ROOT)
    known = Known.read(KNOWN)
    for target in TARGETS:
        if asked.targets and target.name not in asked.targets:
            continue
        sample = _sample(target, asked.sample, asked.seed)
        _try(target, [one for one in sample if asked.only in one.key and not tried.is_decided(one, target)], tried)
        found = [(one, outcome) for one in sample if (outcome := tried.outcome(one)) is not None]
        known = known.updated(target.name, found, len(_sample(target, None, 0)), as_before=asked.before)
        write_whole(KNOWN, known.to_bytes())
        write_whole(PAGE, page(known).encode())
    lacking = [one for one in known.survivors if not one.why]
    sys.stdout.writelines(f"no reason is given for {one.key}\n" for one in lacking)
    return 1 if lacking else 0


def _try(target: Target, left: list[Mutant], tried: Tried) -> None:
    if not left:
        return
    with progress_bar(total=len(left), desc=target.name, unit="mutant") as bar:

        def on_outcome(mutant: Mutant, outcome: Outcome) -> None:
            tried.add(mutant, target, outcome)
            bar.update()

        try_all(ROOT, target, left, on_outcome)


def _sample(target: Target, size: int | None, seed: int) -> list[Mutant]:
    found = [one for file in target.files(ROOT) for one in mutants(ROOT, file)]
    return found if size is None else random.Random(seed).sample(found, len(found))[:size]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci.mutants", description=(__doc__ or "").partition("\n\n")[2])
    names = [one.name for one in TARGETS]
    parser.add_argument("targets", nargs="*", choices=[*names, []], metavar="TARGET", help=f"of {', '.join(names)}")
    parser.add_argument("--sample", type=int, metavar="N", help="try so many of each, not all")
    parser.add_argument("--seed", type=int, default=17, metavar="N", help="another seed gives another sample")
    parser.add_argument("--only", default="", metavar="TEXT", help="try now only those whose file or code holds this")
    parser.add_argument("--before", action="store_true", help="keep the scores as those from before a change")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
