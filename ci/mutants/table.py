"""What is known of mutants: the scores and the survivors, as JSON and as a page of documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ci.mutants.mutations import KINDS, Mutant
from ci.mutants.trial import Outcome

HEAD = """# Mutants

Written by `python -m ci.mutants`. A mutant is the code with one small change: `<` for `<=`, `and` for `or`, a number
one larger, a statement left out. A test must fail with it; where none does, the mutant survives. Then a test is
missing, the code does nothing, or the change makes no difference that anybody could see (the two are equivalent).
Mutants are tried with the tests of the same room: those that run the line changed, the cheapest first, up to 15 s of
CPU time for each mutant. Left out are types, docstrings, imports, assertions, and the words of messages. What is tried
is a sample where it is not all; *before* is the same sample before tests were written for its survivors.
"""
Scores = Mapping[str, tuple[int, int]]
"""By kind: how many were killed, and how many tried."""


@dataclass(frozen=True)
class Survivor:
    """A mutant that no test notices.

    Args:
        target: what it is a mutant of.
        key: as ``Mutant.key`` gives it.
        why: why that is as it should be; empty where nobody has said so yet.
    """

    target: str
    key: str
    why: str


@dataclass(frozen=True)
class Known:
    """What is known.

    Args:
        of_all: how many mutants each target has.
        before: the scores from before a change, by target.
        now: the scores.
        survivors: of the last run.
    """

    of_all: Mapping[str, int]
    before: Mapping[str, Scores]
    now: Mapping[str, Scores]
    survivors: Sequence[Survivor]

    @classmethod
    def read(cls, path: Path) -> Known:
        """Read what :meth:`to_bytes` gave; nothing is known where there is no file."""
        if not path.exists():
            return cls({}, {}, {}, [])
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(told["of_all"], told["before"], told["now"], [Survivor(**one) for one in told["survivors"]])

    def to_bytes(self) -> bytes:
        """Give it as JSON."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    def updated(
        self, target: str, found: Sequence[tuple[Mutant, Outcome]], of_all: int, *, as_before: bool = False
    ) -> Known:
        """Put in what is now known of a target; the reasons of survivors stay."""
        reasons = {one.key: one.why for one in self.survivors}
        survived = sorted(one.key for one, outcome in found if outcome is not Outcome.KILLED)
        now = {target: scores(found)}
        others = [one for one in self.survivors if one.target != target]
        return replace(
            self,
            of_all={**self.of_all, target: of_all},
            before={**self.before, **now} if as_before else self.before,
            now={**self.now, **now},
            survivors=[*others, *(Survivor(target, key, reasons.get(key, "")) for key in survived)],
        )


def scores(found: Sequence[tuple[Mutant, Outcome]]) -> Scores:
    """Count by kind."""
    counts = {}
    for kind in KINDS:
        outcomes = [outcome for one, outcome in found if one.kind == kind]
        counts[kind] = (outcomes.count(Outcome.KILLED), len(outcomes))
    return counts


def page(known: Known) -> str:
    """Give the page of documentation."""
    lines = [HEAD, *_head("code", "mutants", "tried", "killed before", "killed", "survivors")]
    for target, now in known.now.items():
        killed, tried = _sum(now)
        before = _share(*_sum(known.before.get(target, {})))
        lines.append(_row(target, known.of_all[target], tried, before, _share(killed, tried), tried - killed))
    lines += ["", "By kind of change:", "", *_head("kind", "killed before", "killed", "survivors")]
    for kind in KINDS:
        killed, tried = _sum_of(known.now, kind)
        lines.append(_row(kind, _share(*_sum_of(known.before, kind)), _share(killed, tried), tried - killed))
    lines += ["", "## Survivors", ""]
    for why in sorted({one.why for one in known.survivors}):
        lines += [f"{why or 'No reason is given yet'}:", ""]
        lines += [*(f"- {_said(one)}" for one in known.survivors if one.why == why), ""]
    return "\n".join(lines).rstrip() + "\n"


def _head(*names: str) -> tuple[str, str]:
    return _row(*names), _row(*["---"] * len(names))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _said(survivor: Survivor) -> str:
    file, _, rest = survivor.key.partition("::")
    within, _, change = rest.partition("::")
    old, _, new = change.partition("::")[2].rpartition(" #")[0].partition(" -> ")
    place = file.removeprefix("pytest_dsocr/") + (f", `{within}`" if within else "")
    return f"{place}: `{old}` to `{new}`".replace("|", "\\|")


def _sum(scores: Scores) -> tuple[int, int]:
    return sum(one[0] for one in scores.values()), sum(one[1] for one in scores.values())


def _sum_of(several: Mapping[str, Scores], kind: str) -> tuple[int, int]:
    return _sum({target: of[kind] for target, of in several.items()})


def _share(killed: int, tried: int) -> str:
    return f"{killed} of {tried}, {killed / tried:.1%}" if tried else ""
