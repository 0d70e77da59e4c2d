"""The text of a failing test, on one screen: what differs, where it began, why, and what to type next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_dsocr.base.words import COLUMNS, MARGIN, entry, fit, plain, relative_path
from pytest_dsocr.compare.case import CaseReport, Explanation, judge
from pytest_dsocr.compare.diff import DiffLine, DiffSide, Piece, plain_line
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.tolerances import NAMES
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Verdict
from pytest_dsocr.contract import ROWS
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.explain.hints import hint
from pytest_dsocr.records.config import Level
from pytest_dsocr.report.payload import Origin, RunPayload, of_run, picture_name
from pytest_dsocr.report.words import first_wrong, reference_in_words, rerun, subject_in_words

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dsocr.records.config import Config
    from pytest_dsocr.reference.protocol import Reference

LEGEND: DiffLine = (
    Piece(DiffSide.REFERENCE, "only in the reference"),
    Piece(DiffSide.BOTH, " "),
    Piece(DiffSide.SUBJECT, "only in the subject"),
)


def diff_lines(diff: Sequence[DiffLine]) -> Iterator[str]:
    """Yield the lines of a failure that show a diff, under a legend; none where there is no diff."""
    for k, line in enumerate((LEGEND, *diff) if diff else ()):
        yield plain_line((Piece(DiffSide.BOTH, f"{'' if k else 'diff':<{MARGIN}}"), *line))


def acceptable(report: CaseReport, names: Collection[str]) -> Mapping[str, float]:
    """Return the tolerances, as few and as small as will do, under which the comparisons ``names`` pass.

    Empty where only such would do as no longer tell a model from another: of a tensor ten times the limit, of boxes
    three or a twentieth of the page, of texts a tenth.
    """
    ladders = {name: report.limits.suggested(name) for name in NAMES}
    chosen = {name: ladder[-1] for name, ladder in ladders.items() if ladder}
    if not _pass(report, names, chosen):
        return {}
    for name in list(chosen):
        for value in (getattr(report.limits, name), *ladders[name]):
            if _pass(report, names, chosen | {name: value}):
                chosen[name] = value
                break
    return {name: value for name, value in chosen.items() if value != getattr(report.limits, name)}


def _pass(report: CaseReport, names: Collection[str], overrides: Mapping[str, float]) -> bool:
    judged = judge(report.exchange, report.limits.but(overrides))
    return all(one.passes for one in judged.comparisons if one.what in names)


MOST_LINES = 40
CHECK = "check: "
"""How the detail of a comparison begins that says what to check, where whoever compared found it out."""
COMMANDS = ("accept: ", "profile: ")
"""How details begin that are never cut: they are to be copied."""
TOLD_ALONE, TOLD_WHOLE = (*ROWS, "dtypes", MMD, "artefacts"), ("read", "text")
"""Stages and comparisons whose mistakes are recognised by one comparison, without the others of its case; of pixels
and grids the suites themselves look for what makes the subject's."""
MOST_COMPARISONS, LINES_OF_COMPARISON, MOST_DETAILS, MOST_FINDINGS, LINES_OF_FINDING = 5, 2, 9, 3, 2


def failure_text(
    failing: Sequence[Comparison],
    report: CaseReport | None,
    config: Config,
    nodeid: str,
    reference: Reference | None,
    options: Sequence[str] = (),
    root: Path | None = None,
) -> str:
    """Return the text of a test that fails, at most :data:`MOST_LINES` lines.

    Args:
        failing: the test's comparisons that do not pass.
        report: the whole case, where they are of one.
        config: the run's.
        nodeid: the test's.
        reference: the one that was compared with; None in a test that asked for none.
        options: what was typed behind ``pytest`` beside the tests to run.
        root: what ids of tests are relative to; the working directory by itself.
    """
    level = report.exchange.answer.level if report else None
    run = of_run(config, _answering(reference, report), level) if reference else None
    return "\n".join(_Failure(failing, report, config, run, rerun(nodeid, options, root)).lines)


def cause_of(failing: Sequence[Comparison], report: CaseReport | None, config: Config) -> Origin:
    """Return why a test fails, by the whole case where its comparisons are of one; the rest as in a payload."""
    divergence, explanation = _divergence(failing, report), _explanation(report)
    proven = explanation is not None and explanation.is_proven
    return {
        "what": divergence.first.what if divergence else "",
        "why": explanation.text if explanation and proven else "; ".join(_checks(failing, report, config)),
        "mistakes": list(explanation.mistakes) if explanation and proven else [],
    }


def _checks(failing: Sequence[Comparison], report: CaseReport | None, config: Config) -> list[str]:
    """Return what to check: of no case what the suite itself found out, or else what where it breaks points at."""
    divergence, details = _divergence(failing, report), (line for one in failing for line in one.details)
    own = [] if report else [line.removeprefix(CHECK) for line in details if line.startswith(CHECK)]
    family = report.case.family if report else family_named(config.checkpoint)
    return [*dict.fromkeys(own or ([hint(divergence, family)] if divergence else []))]


def _divergence(failing: Sequence[Comparison], report: CaseReport | None) -> Divergence | None:
    """Return where it breaks first; without a case, of inputs or files that were compared with something recorded."""
    if report is not None:
        return report.divergence
    return first_divergence([one for one in failing if one.stage in TOLD_ALONE or one.what in TOLD_WHOLE])


def _explanation(report: CaseReport | None) -> Explanation | None:
    """Return what explains where the case breaks; not what explains another place, which its own limits allow."""
    divergence, found = (report.divergence, report.exchange.explanation) if report else (None, None)
    return found if divergence and found and found.what in ("", divergence.first.what, divergence.begins) else None


def _answering(reference: Reference, report: CaseReport | None) -> Reference:
    """Return the reference that answered for a case, where there may be two."""
    from pytest_dsocr.reference.engine import EngineReference

    if report is None or not isinstance(reference, EngineReference):
        return reference
    return reference.answering(report.exchange.expected)


@dataclass(frozen=True)
class _Failure:
    failing: Sequence[Comparison]
    report: CaseReport | None
    config: Config
    run: RunPayload | None
    again: str

    @property
    def lines(self) -> Iterator[str]:
        yield self._headline
        yield from self._differing()
        yield from self._first_wrong()
        if self.run:
            yield from entry("subject", subject_in_words(self.run), 2)
            yield from entry("reference", reference_in_words(self.run), 2)
        if self.report and self.config.out:
            yield from entry("picture", relative_path(str(self.config.out / picture_name(self.report.case.id))), 2)
        yield from self._accepting()
        yield f"{'rerun':<{MARGIN}}{self.again}"  # never cut or broken: it is to be copied

    @property
    def _ranked(self) -> Sequence[Comparison]:
        """What does not pass, the gravest first."""
        return sorted(self.failing, key=lambda one: SEVERITY.index(one.verdict), reverse=True)

    @property
    def _headline(self) -> str:
        """The finding itself, as pytest's short summary shows only the first line of a failure."""
        more = f" (and {len(self.failing) - 1} more)" if len(self.failing) > 1 else ""
        return fit(_finding(self._ranked[0]), COLUMNS - len(more)) + more

    @property
    def _elsewhere(self) -> bool:
        """Whether the case breaks before what this test compares."""
        found = self.report.divergence if self.report else None
        return found is not None and found.first.what not in {one.what for one in self.failing}

    def _differing(self) -> Iterator[str]:
        """Yield what does not pass, with details unless it may follow from something earlier."""
        left = 0 if self._elsewhere else MOST_DETAILS
        of = f" of {self.report.case.id}" if self.report else ""
        for k, one in enumerate(self._ranked[:MOST_COMPARISONS]):
            is_shown = k == 0 and self._headline.startswith(plain(_finding(one)))
            found = f"{one.what}{of}" if is_shown else _finding(one)
            yield from entry(one.verdict, found, LINES_OF_COMPARISON)
            details = [_detail(line) for line in one.details if not line.startswith(CHECK)]
            details += diff_lines(one.diff)
            yield from details[:left]
            left = max(0, left - len(details))
        if len(self.failing) > MOST_COMPARISONS:
            yield f"{'':<{MARGIN}}and {len(self.failing) - MOST_COMPARISONS} more"

    def _first_wrong(self) -> Iterator[str]:
        divergence, checks = _divergence(self.failing, self.report), _checks(self.failing, self.report, self.config)
        if self.report is None or divergence is None:
            for check in checks:
                yield from entry("check", check)
            return
        first = first_wrong(divergence.first.what, divergence.right)
        if self._elsewhere:
            yield from entry("first wrong", f"{first}: {divergence.first.measured}", 1)
            yield from entry("", "this comes before what this test compares, and may be its cause", 2)
        else:
            yield from entry("first wrong", first)
        if explanation := _explanation(self.report):
            yield from entry("explained", explanation.text)
        if explanation is None or not explanation.is_proven:
            yield from entry("check", checks[0])
        for finding in self.report.exchange.findings[:MOST_FINDINGS]:
            yield from entry("found", finding, LINES_OF_FINDING)

    def _accepting(self) -> Iterator[str]:
        """Say which tolerance would let it pass: none where the cause is proven, or where no reasonable one would."""
        wrong = [one.what for one in self.failing if one.verdict is Verdict.WRONG]
        if self.report is None or self._elsewhere or len(wrong) < len(self.failing):
            return
        explanation, is_text = _explanation(self.report), self.report.exchange.answer.level is Level.TEXT
        is_proven = explanation is not None and explanation.is_proven
        is_steady = self.report.readings is None or not self.report.readings.why
        if is_steady and not is_proven and (chosen := acceptable(self.report, wrong)):
            typed = " ".join(f"--dsocr-tolerances={name}={value:g}" for name, value in chosen.items())
            marked = ", ".join(f"{name}={value:g}" for name, value in chosen.items())
            first = "text alone does not tell rounding from a mistake: do the check first; " if is_text else ""
            allowing = f"where this may differ: {typed}, or in the test: @pytest.mark.dsocr({marked})"
            yield from entry("accept", first + allowing)
        else:
            yield from entry("accept", "no tolerance is meant for a difference like this")


def _detail(line: str) -> str:
    shown = f"{'':<{MARGIN}}{line}"
    return shown if line.startswith(COMMANDS) else fit(shown)


def _finding(comparison: Comparison) -> str:
    return f"{comparison.what}: {comparison.measured}"
