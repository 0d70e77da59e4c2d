"""Summary at the end of pytest's output: comparisons, verdict, files, and the command to run next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_dsocr.base.words import MARGIN, count, entry, listed, plain, relative_path
from pytest_dsocr.compare.verdict import Symptom, Verdict
from pytest_dsocr.records.config import Level
from pytest_dsocr.report import words
from pytest_dsocr.report.cause import FailureCause, also_failed, label, others_failed, where_broke
from pytest_dsocr.report.ci import errors
from pytest_dsocr.report.document import Missing
from pytest_dsocr.report.outcomes import remarks
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.strip import CARRIED, strips
from pytest_dsocr.report.times import in_line, in_table, table

if TYPE_CHECKING:
    import pytest

TITLE = "pytest-dsocr: subject and reference"
MOST, MOST_STRIPS, MOST_CAUSES, MOST_NAMED = 20, 3, 3, 6
WITH_V = ", shown with -v"
GOOD, BAD, NOTED = {"green": True}, {"red": True, "bold": True}, {"yellow": True}
NO_MARKUP: Mapping[str, bool] = {}
MARKUP_OF_PACE = {
    **{"SLOWER": BAD, "FASTER": GOOD, "SAME": GOOD, "NOT-SLOWER": GOOD},
    **{"AMBIGUOUS": NOTED, "NOT-COMPARED": NOTED},
}


class TerminalLine(NamedTuple):
    """A line, and how pytest's terminal writer colours it."""

    text: str
    markup: Mapping[str, bool] = NO_MARKUP


@dataclass(frozen=True)
class Summary:
    """A run's result as the terminal shows it."""

    result: RunResult
    options: Sequence[str] = ()
    """Options of the run, without its positional arguments."""
    written: Sequence[str] = ()
    """Paths of the written files."""
    verbose: bool = False

    @property
    def lines(self) -> Iterator[TerminalLine]:
        """Yield every line; an error while making them becomes one line."""
        yield from _safely("summary", self._lines)

    def show(self, reporter: pytest.TerminalReporter) -> None:
        """Write the section, followed by GitHub's annotations."""
        reporter.write_sep("=", TITLE)
        for line in (*self.lines, *_safely("annotations", lambda: map(TerminalLine, errors(self.result.document)))):
            reporter.write_line(line.text, **line.markup)

    def folded(self, reports: Sequence[pytest.TestReport]) -> list[pytest.TestReport]:
        """Return one failure of each cause, which names the others; with ``-v`` all failures."""
        try:
            causes = {one.tests[0]: one for one in self.result.causes if one.tests and not self.verbose}
        except Exception:  # which the summary shows
            causes = {}
        told = {nodeid for nodeid, test in self.result.tests.items() if causes and test.is_told}
        shown = [one for one in reports if one.nodeid in causes or one.nodeid not in told]
        return [_with(one, causes[one.nodeid]) if one.nodeid in causes else one for one in shown]

    def show_causes(self, reporter: pytest.TerminalReporter) -> None:
        """Write where the run first broke, and why, just before pytest's totals."""
        for line in _safely("summary", self._causes):
            reporter.write_line(line.text, **line.markup)

    def _causes(self) -> Iterator[TerminalLine]:
        causes = self.result.causes
        large = [one for one in causes if one.cases or len(one.tests) > 1]
        shown = [*(one for one in causes[:1] if one not in large), *large][:MOST_CAUSES]
        for one in shown:
            more = [f"{clause}{'' if self.verbose else WITH_V}"] if (clause := others_failed(one)) else []
            for k, line in enumerate((*one.lines, *more)):
                yield from _labelled("" if k else label(one), line, BAD, 5)
        for is_cause, what in ((True, "more cause"), (False, "more failing check")):
            if left := [one for one in causes if one not in shown and is_cause is self._is_another(one)]:
                number = len(left) if is_cause else sum(len(one.tests) for one in left)
                perhaps = "" if is_cause else ", perhaps of the same cause" if shown else ""
                named = listed([*dict.fromkeys(map(where_broke, left))], MOST_CAUSES)
                yield from _labelled("", f"and {count(number, what)}{perhaps}: {named}")

    def _is_another(self, one: FailureCause) -> bool:
        """Return whether it is known that a cause is not the same as another one."""
        return bool(one.cases) or one.proven or any(self.result.tests[test].sent.fault for test in one.tests)

    def _lines(self) -> Iterator[TerminalLine]:
        yield from self._sides()
        yield self._counted()
        if why_not := self.result.why_not_made:
            yield from _labelled("not made", listed([f"{why} ({number})" for why, number in why_not.items()]))
        shown = {
            "first token": words.first_token_in_words,
            "compression": words.compression_in_words,
            "readings": words.readings_in_words,
        }
        for name, of in shown.items():
            if said := of(self.result.cases):
                yield from _labelled(name, said)
        if spending := self.result.spending:
            yield from _labelled("budget", spending.title)
            for text, is_over in spending.lines:
                yield from _labelled("", text, BAD if is_over else NO_MARKUP)
        yield from self._strips()
        yield from self._perf()
        yield from self._beside()
        yield from self._left_out()
        if self.written:
            yield from _labelled("written", ", ".join(map(relative_path, self.written)))
        yield from _labelled("verdict", self.result.verdict, BAD if self.result.why_not else GOOD)
        if elapsed := [*self.result.elapsed.values()]:
            yield from _labelled("time", in_line(elapsed))
            yield from (TerminalLine(f"    {line}") for line in in_table(elapsed) if self.verbose)
        for reason, command in words.following(self.result, self.options):
            yield from _labelled("next", f"{reason}:")
            yield TerminalLine(f"    {command}")

    def _sides(self) -> Iterator[TerminalLine]:
        if self.result.run:
            yield from _labelled("subject", words.subject_in_words(self.result.run))
            yield from _labelled("reference", words.reference_in_words(self.result.run))

    def _counted(self) -> TerminalLine:
        result = self.result
        if not result.made:
            if result.tests and not result.promised:
                return TerminalLine("0 comparisons: no test asks for dsocr_check or is marked dsocr")
            return TerminalLine("0 comparisons: nothing was compared, so the run does not pass", BAD)
        error, suite = result.worst_drift
        by_verdict = words.counts(result.counts, error, suite if result.suites[1:] else "")
        cases = f" in {count(len(result.cases), 'case')}" if result.cases else ""
        bad = Verdict.WRONG in result.counts
        made = f"{count(result.made, 'comparison')} by {listed(result.suites, MOST_NAMED)}"
        return TerminalLine(f"{made}{cases}: {by_verdict}", BAD if bad else GOOD)

    def _strips(self) -> Iterator[TerminalLine]:
        """Yield the stages of the cases, whichever tests were selected; then what is suspicious."""
        shown = [*strips(self.result.cases, MOST_STRIPS)]
        for name, strip, is_wrong in shown:
            yield TerminalLine(f"{plain(name):<{MARGIN}}{strip}", BAD if is_wrong else NO_MARKUP)
        if any(CARRIED[0] in strip for _, strip, _ in shown):
            yield TerminalLine(f"{CARRIED[0]:<{MARGIN}}{CARRIED[1]}")
        for where, least in self.result.suspicious[:MOST_STRIPS]:
            yield from _labelled("SUSPICIOUS", f"{where}: {least:.1e}, {Symptom.SUSPICIOUS.sentence}", NOTED)

    def _perf(self) -> Iterator[TerminalLine]:
        """Yield the median of each quantity with the baseline's, if there is one, and the subject's bottleneck."""
        if self.result.perf is None:
            return
        for line in table(self.result.perf):
            yield TerminalLine(f"    {line.text}", MARKUP_OF_PACE.get(line.pace, NO_MARKUP))
        for sentence in self.result.perf["in_short"]:
            yield from _labelled("times", sentence)

    def _beside(self) -> Iterator[TerminalLine]:
        """Yield findings that do not change the verdict: comparisons outside the limits, flaky tests, notes."""
        outside = [(case, one) for case in self.result.cases for one in case.outside]
        for case, one in outside[:MOST]:
            by = f"allowed by {listed(one.allowed_by, 2)}" if one.allowed_by else "no test of this run checks it"
            found = f"{one.what} {one.verdict}: {one.measured}"
            yield from _labelled("outside limits", f"{case.id}, {found}; {by}", NOTED)
        yield from _more(outside)
        for test in self.result.flaky[:MOST]:
            failures = count(test.failed_before, "failure")
            yield from _labelled("FLAKY", f"{test.nodeid}: passed only when run again, after {failures}", NOTED)
        yield from _more(self.result.flaky)
        notes = [*self.result.notes, *remarks(self.result.cases, self.result.run)]
        for note in notes[:MOST]:
            yield from _labelled("noticed", note, NOTED)
        yield from _more(notes)

    def _left_out(self) -> Iterator[TerminalLine]:
        if sentence := self.result.not_looked_at:
            yield TerminalLine(sentence, NOTED)
        if (left := self.result.left).tests:
            by = f" by {', '.join(left.by)}" if left.by else ""
            which = f"{left.tests} of {count(left.of, 'test')}{by}: {listed(left.names)}"
            yield from _labelled("left out", which, NOTED)
        for level, names in self.result.not_offered.items():
            if level not in self.result.above or self.verbose:
                yield from _labelled("not offered", f"{level}: {listed(names)}", NOTED)
        if above := self.result.above:
            own = self.result.run.level if self.result.run else None
            offered = next((level.meaning for level in Level if str(level) == own), "is offered")
            needed = ", ".join(f"{tests} {level}" for level, tests in above.items())
            asking = f"{count(sum(above.values()), 'test')} {'needs' if sum(above.values()) == 1 else 'need'}"
            yield from _labelled("not offered", f"{asking} more than {offered}: {needed}", NOTED)
        kinds: dict[tuple[str, bool], list[Missing]] = {}  # all unrecorded pages are one
        for one in self.result.missing:
            kinds.setdefault((one.what, one.allowed), []).append(one)
        for alike in kinds.values():
            asking, others = count(sum(one.tests for one in alike), "test"), len(alike) - 1
            allowed, needed = alike[0].allowed, f"needed by {asking}: {alike[0].why}"
            what, markup = ("skipped", NOTED) if allowed else ("missing", BAD)
            name = f"{alike[0].what} (allowed)" if allowed else alike[0].what
            yield from _labelled(what, f"{name}, {needed}", markup, 3)
            if others:
                yield from _labelled("", f"and {others} more", markup)
        for what, reasons in (("skipped", self.result.skips), ("known to fail", self.result.known_failures)):
            for reason, tests in list(reasons.items())[:MOST]:
                yield from _labelled(what, f"{count(tests, 'test')}: {reason}", NOTED)
            yield from _more(reasons)


def _with(report: pytest.TestReport, cause: FailureCause) -> pytest.TestReport:
    """Return a copy of a report that also names the other tests of its cause, if there are any."""
    if others := also_failed(cause, MOST_NAMED, WITH_V):
        report = copy(report)
        report.longrepr = "\n".join((str(report.longrepr).rstrip(), *entry("also failed", others)))
    return report


def _safely(what: str, make: Callable[[], Iterable[TerminalLine]]) -> Iterator[TerminalLine]:
    """Yield lines; an error while making them must not hide pytest's own results."""
    try:
        yield from make()
    except Exception as error:
        yield TerminalLine(plain(f"the {what} cannot be shown ({error!r}); the tests' own results stand"), BAD)


def _more(found: Sized) -> Iterator[TerminalLine]:
    if len(found) > MOST:
        yield from _labelled("", f"and {len(found) - MOST} more")


def _labelled(
    what: str, text: str, markup: Mapping[str, bool] = NO_MARKUP, most_lines: int = 4
) -> Iterator[TerminalLine]:
    yield from (TerminalLine(line, markup) for line in entry(what, text, most_lines))
