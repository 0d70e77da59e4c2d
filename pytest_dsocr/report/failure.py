"""What a failing test says, on one screen: what differs, from what, where it began, why, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.report.accepting import acceptable
from pytest_dsocr.report.commands import record, rerun
from pytest_dsocr.report.payload import RunPayload, of_run, picture_name
from pytest_dsocr.report.words import COLUMNS, fit, listed, reference_in_words, subject_in_words

if TYPE_CHECKING:
    from pytest_dsocr.options import Config
    from pytest_dsocr.parity import CaseReport
    from pytest_dsocr.vendor.reference import Reference

MARGIN = 14
MOST_LINES, MOST_COMPARISONS, MOST_DETAILS, MOST_OF_CAUSE, MOST_FINDINGS = 40, 6, 9, 4, 3


def failure_text(
    failing: Sequence[Comparison],
    report: CaseReport | None,
    config: Config,
    nodeid: str,
    reference: Reference | None,
    options: Sequence[str] = (),
) -> str:
    """Give the text of a test that fails, at most :data:`MOST_LINES` lines.

    Args:
        failing: the test's comparisons that do not pass.
        report: the whole case, where they are of one.
        config: the run's.
        nodeid: the test's.
        reference: whose word was taken; None in a test that asked for none.
        options: what was typed behind ``pytest`` beside the tests to run.
    """
    level = report.exchange.answer.level if report else None
    run = of_run(config, reference, level) if reference else None
    return "\n".join(_Failure(failing, report, config, run, rerun(nodeid, options)).lines)


@dataclass(frozen=True)
class _Failure:
    failing: Sequence[Comparison]
    report: CaseReport | None
    config: Config
    run: RunPayload | None
    again: str

    @property
    def lines(self) -> Iterator[str]:
        of = f" of {self.report.case.id}" if self.report else ""
        yield fit(f"{listed([one.what for one in self.failing])}{of}: not what the reference has")
        yield from self._differing()
        yield from self._first_wrong()
        if self.run:
            yield from _told("subject", subject_in_words(self.run))
            yield from _told("reference", reference_in_words(self.run))
        if self.report and self.config.out:
            yield from _told("picture", str(self.config.out / picture_name(self.report.case.id)))
        yield from self._accepting()
        yield f"{'rerun':<{MARGIN}}{self.again}"  # never cut or broken: it is to be copied

    @property
    def _elsewhere(self) -> bool:
        """Whether the case breaks in front of what this test holds."""
        found = self.report.divergence if self.report else None
        return found is not None and found.first.what not in {one.what for one in self.failing}

    def _differing(self) -> Iterator[str]:
        """Yield what does not pass; the anatomy of the first only, and not where it comes of something else."""
        for k, one in enumerate(self.failing[:MOST_COMPARISONS]):
            yield fit(f"  {one.verdict:<13} {one.what}: {one.measured}")
            if k == 0 and not self._elsewhere:
                yield from (fit(f"{'':<{MARGIN + 2}}{line}") for line in one.details[:MOST_DETAILS])
        if len(self.failing) > MOST_COMPARISONS:
            yield f"  and {len(self.failing) - MOST_COMPARISONS} more"

    def _first_wrong(self) -> Iterator[str]:
        divergence = self.report.divergence if self.report else None
        if divergence is None:
            return
        if self._elsewhere:
            first = f"{divergence.first.what}, after {divergence.right} that are right: {divergence.first.measured}"
            yield fit(f"{'first wrong':<{MARGIN}}{first}")
            yield fit(
                f"{'':<{MARGIN}}in front of what this test holds: begin with the tests of {divergence.first.stage}"
            )
            return
        yield from _told("first wrong", f"this is, after {divergence.right} that are right")
        yield from _told("check", divergence.cause, MOST_OF_CAUSE)
        for finding in (self.report.exchange.findings if self.report else ())[:MOST_FINDINGS]:
            yield from _told("found", finding, 2)

    def _accepting(self) -> Iterator[str]:
        """Say which tolerance would do, if one can be answered for; what the vendor's code gave is never accepted."""
        wrong = [one.what for one in self.failing if one.verdict is Verdict.WRONG]
        if self.report is None or len(wrong) < len(self.failing):
            return
        if chosen := acceptable(self.report, wrong):
            typed = " ".join(f"--dsocr-tolerances {name}={value:g}" for name, value in chosen.items())
            marked = ", ".join(f"{name}={value:g}" for name, value in chosen.items())
            yield from _told(
                "accept", f"if so much may differ: {typed}, or of this test alone: @pytest.mark.dsocr({marked})"
            )
        elif self.run and self.run["reference"] == "recorded":
            yield f"{'accept':<{MARGIN}}not by a tolerance; and what the vendor's code gave is only recorded anew:"
            yield f"{'':<{MARGIN}}{record(self.run)} --again"


def _told(what: str, text: str, most_lines: int = 3) -> Iterator[str]:
    """Yield ``text`` under ``what``, on as many lines as it needs up to a limit."""
    lines = wrap(fit(text, len(text) * 10), COLUMNS - MARGIN) or [""]
    if len(lines) > most_lines:
        lines[most_lines - 1] += "..."
    for k, line in enumerate(lines[:most_lines]):
        yield fit(f"{'' if k else what:<{MARGIN}}{line}")
