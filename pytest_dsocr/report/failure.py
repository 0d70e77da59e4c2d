"""The text of a failing test, on one screen: what differs, where it began, why, and what to type next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from pytest_dsocr.base.words import COLUMNS, MARGIN, entry, fit, plain, relative_path
from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.diff import DiffLine, DiffSide, Piece, plain_line
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Verdict
from pytest_dsocr.contract import ROWS
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.describe.description import Description
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.explain.hints import hint
from pytest_dsocr.records.config import Config, Level
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.report.accepting import EXACT, acceptable, is_cause_known, is_exact_text, suggests
from pytest_dsocr.report.case_result import FurtherResult, advice, picture_name
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.words import first_wrong, reference_in_words, subject_in_words
from pytest_dsocr.report.worker_report import FailureOrigin

LEGEND: DiffLine = (
    Piece(DiffSide.REFERENCE, "only in the reference"),
    Piece(DiffSide.BOTH, " "),
    Piece(DiffSide.SUBJECT, "only in the subject"),
)
LEGEND_ALONE: DiffLine = (
    Piece(DiffSide.REFERENCE, "only expected"),
    Piece(DiffSide.BOTH, " "),
    Piece(DiffSide.SUBJECT, "only found"),
)
"""Legend of a test without a case, where both sides may be the subject's."""


MOST_LINES = 40
CHECK = "check: "
"""Prefix of a detail with advice from the suite that compared."""
COMMANDS = ("accept: ", "profile: ")
"""Prefixes of details that are never cut, so that you can copy them."""
TOLD_ALONE, TOLD_WHOLE = (*ROWS, "dtypes", MMD, "artefacts"), ("read", "text")
"""Stages and comparisons with hints that need no other comparison of the case; the suites themselves search for the
causes of wrong pixels and grids."""
MOST_COMPARISONS, LINES_OF_COMPARISON, MOST_DETAILS, MOST_FINDINGS, LINES_OF_FINDING = 5, 2, 9, 3, 2
MOST_LEFT = 4
"""Number of further causes and findings."""


@dataclass(frozen=True)
class TestFailure:
    """Failure of a test by comparisons that do not pass, with its whole case if it has one."""

    __test__ = False

    failing: Sequence[Comparison]
    report: CaseReport | None
    config: Config

    @cached_property
    def divergence(self) -> Divergence | None:
        """First break of the case; without a case, that of its inputs or files."""
        if self.report is not None:
            return self.report.divergence
        return first_divergence([one for one in self.failing if one.stage in TOLD_ALONE or one.what in TOLD_WHOLE])

    @cached_property
    def explanation(self) -> Explanation | None:
        """Explanation of the case's first break; None without a case."""
        return self.report.explanation if self.report else None

    @cached_property
    def described(self) -> Description | None:
        """Description of the case's first break; None without a case."""
        return self.report.described if self.report else None

    @property
    def is_proven(self) -> bool:
        """Whether the explanation is proven."""
        return self.explanation is not None and self.explanation.is_proven

    @cached_property
    def checks(self) -> list[str]:
        """Advice of the suite for a test without a case, otherwise the hint of the first break."""
        details = [line for one in self.failing for line in one.details if self.report is None]
        own = [line.removeprefix(CHECK) for line in details if line.startswith(CHECK)]
        if self.report is not None:
            said = advice(self.report)
        else:
            first = self.divergence.first if self.divergence else None
            is_seen = first is not None and first.signs and first.what not in TOLD_WHOLE
            said = hint(self.divergence, family_named(self.config.checkpoint)) if self.divergence and is_seen else ""
        return [*dict.fromkeys(own or filter(None, [said]))]

    @property
    def origin(self) -> FailureOrigin:
        """Reason of the failure, judged by its whole case if it has one."""
        what = self.divergence.first.what if self.divergence else ""
        if self.explanation and self.is_proven:
            return FailureOrigin(what, self.explanation.text, [*self.explanation.mistakes])
        described = self.described.text if self.described else ""
        of_whole = described if self.described and self.described.explains else ""
        return FailureOrigin(what, "; ".join(self.checks) or described, [], of_whole)

    def text(self, reference: Reference | None, again: str) -> str:
        """Return the text for a terminal, at most :data:`MOST_LINES` lines; ``again`` runs the test again."""
        last = f"{'rerun':<{MARGIN}}{again}"  # never cut or broken: it is to be copied
        parts = self._differing(), self._first_wrong(), self._sides(reference), self._accepting()
        return "\n".join((self._headline, *chain.from_iterable(parts), last))

    def _sides(self, reference: Reference | None) -> Iterator[str]:
        if reference:
            level = self.report.exchange.answer.level if self.report else None
            run = RunSides.of(self.config, _answering(reference, self.report), level)
            yield from entry("subject", subject_in_words(run), 2)
            yield from entry("reference", reference_in_words(run), 2)
        if self.report and self.config.out:
            yield from entry("picture", relative_path(str(self.config.out / picture_name(self.report.case.id))), 2)

    @property
    def _ranked(self) -> Sequence[Comparison]:
        """Comparisons that do not pass, the gravest first."""
        return sorted(self.failing, key=lambda one: SEVERITY.index(one.verdict), reverse=True)

    @property
    def _headline(self) -> str:
        """First line, the worst finding: pytest's short summary shows only this one."""
        more = f" (and {len(self.failing) - 1} more)" if len(self.failing) > 1 else ""
        return fit(_finding(self._ranked[0]), COLUMNS - len(more)) + more

    @property
    def _elsewhere(self) -> bool:
        """Whether the case breaks before what this test compares."""
        found = self.report.divergence if self.report else None
        return found is not None and found.first.what not in {one.what for one in self.failing}

    def _differing(self) -> Iterator[str]:
        """Yield comparisons that do not pass, with details unless an earlier break may be the cause."""
        left = 0 if self._elsewhere else MOST_DETAILS
        of = f" of {self.report.case.id}" if self.report else ""
        for k, one in enumerate(self._ranked[:MOST_COMPARISONS]):
            is_shown = k == 0 and self._headline.startswith(plain(_finding(one)))
            found = f"{one.what}{of if k == 0 else ''}{'' if is_shown else f': {one.measured}'}"
            yield from entry(one.verdict, found, LINES_OF_COMPARISON)
            shown = [(f"{'':<{MARGIN}}{line}", line) for line in one.details if not line.startswith(CHECK)]
            details = [whole if line.startswith(COMMANDS) else fit(whole) for whole, line in shown]
            for k, line in enumerate((LEGEND if self.report else LEGEND_ALONE, *one.diff) if one.diff else ()):
                details.append(plain_line((Piece(DiffSide.BOTH, f"{'' if k else 'diff':<{MARGIN}}"), *line)))
            yield from details[:left]
            left = max(0, left - len(details))
        if len(self.failing) > MOST_COMPARISONS:
            yield f"{'':<{MARGIN}}and {len(self.failing) - MOST_COMPARISONS} more"

    def _first_wrong(self) -> Iterator[str]:
        if self.report is None or self.divergence is None:
            for check in self.checks:
                yield from entry("check", check)
            return
        first = first_wrong(self.divergence.first.what, self.divergence.right)
        if self._elsewhere:
            yield from entry("first wrong", f"{first}: {self.divergence.first.measured}", 1)
            yield from entry("", "it comes before this test's comparisons, and may be the cause", 2)
        else:
            yield from entry("first wrong", first)
        if self.explanation:
            yield from entry("explained", self.explanation.text)
        if self.described and not self.is_proven:
            yield from entry("measured", self.described.text)
        if not self.is_proven and self.checks:
            yield from entry("check", self.checks[0])
        further = [FurtherResult.of(one) for one in self.report.exchange.further]
        also = [("also wrong", f"{one.what}: {one.said}") for one in further]
        found = [("found", one) for one in self.report.exchange.findings[:MOST_FINDINGS]]
        for what, finding in (*also, *found)[:MOST_LEFT]:
            yield from entry(what, finding, LINES_OF_FINDING)

    def _accepting(self) -> Iterator[str]:
        """Yield a tolerance that would let the test pass, or that there is none; nothing if it would hide a mistake."""
        wrong = [one.what for one in self.failing if one.verdict is Verdict.WRONG]
        if self.report is None or self._elsewhere or len(wrong) < len(self.failing) or is_cause_known(self.report):
            return
        chosen = acceptable(self.report, wrong)
        if not chosen:
            yield from entry("accept", "no reasonable tolerance allows this difference")
        elif is_exact_text(self.report, self.config.device):
            yield from entry("accept", EXACT)
        elif suggests(self.report, chosen, self.config.device):
            typed = " ".join(f"--dsocr-tolerances={name}={value:g}" for name, value in chosen.items())
            marked = ", ".join(f"{name}={value:g}" for name, value in chosen.items())
            is_text = self.report.exchange.answer.level is Level.TEXT
            first = "do the check first, as text alone does not tell rounding from a mistake; " if is_text else ""
            allowing = f"if this page may differ: {typed}, or in the test: @pytest.mark.dsocr({marked})"
            yield from entry("accept", first + allowing)


def _answering(reference: Reference, report: CaseReport | None) -> Reference:
    """Return the reference that answered for a case: the engine, or the recording that it completes."""
    from pytest_dsocr.reference.engine import EngineReference

    if report is None or not isinstance(reference, EngineReference):
        return reference
    return reference.answering(report.exchange.expected)


def _finding(comparison: Comparison) -> str:
    return f"{comparison.what}: {comparison.measured}"
