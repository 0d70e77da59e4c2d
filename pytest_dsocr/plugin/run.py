"""Run in its controller: it collects the tests' results, shows the verdict so far, and writes the final result."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import count, plain
from pytest_dsocr.plugin.stash import CONFIG, DESELECTED, JOURNAL, UNMATCHED, WITNESS
from pytest_dsocr.report.plan import DIED, Plan

if TYPE_CHECKING:
    from pytest_dsocr.report.file import RunIdentity
    from pytest_dsocr.report.result import RunResult
    from pytest_dsocr.report.terminal import Summary

SHOW_EVERY_S = 5.0


class Run:
    """Collector of all comparisons. It fails a run that does not pass, and writes and shows its result.

    Args:
        out: folder of the result, which is marked as running already; None if no result is written.
        identity: the run's identity in that mark.
    """

    def __init__(self, config: pytest.Config, out: Path | None, identity: RunIdentity | None) -> None:
        self.config, self.out, self.identity = config, out, identity
        self.plan = Plan()
        self.written: list[str] = []
        self._result: RunResult | None = None
        self._session: pytest.Session | None = None
        self._left_as: int | None = None
        self._taken = 0
        self._right: dict[str, bool] = {}
        """Whether each case so far is right, by id."""
        self._is_given_up = False
        """Whether a worker gave up because of a failure."""
        self._next_s = 0.0
        self._started_s = monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the planned tests of a run without workers."""
        self.plan.add(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the planned tests of a worker. Each worker collects all."""
        self.plan.add(ids)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Write the progress of a run of ours, if pytest does not write to a terminal."""
        if CONFIG not in self.config.stash or self._is_on_terminal() or self.config.get_verbosity() < 0:
            return (yield)
        from pytest_dsocr.base.progress import EVERY_S
        from pytest_dsocr.plugin.loading import reported_past_capture

        with reported_past_capture(self._so_far, self.config, EVERY_S):
            return (yield)

    @pytest.hookimpl(specname="pytest_runtestloop", wrapper=True)
    def pytest_end_by_failures(self, session: pytest.Session) -> Generator[None, object, object]:
        """End a run with workers that failures stop as pytest ends one without; pytest-xdist interrupts it."""
        try:
            return (yield)
        except KeyboardInterrupt as error:
            workers: Any = self.config.pluginmanager.getplugin("dsession")
            is_full = bool(workers and workers.maxfail and workers.countfailures >= workers.maxfail)
            if not (is_full or self._is_given_up):
                raise
            session.shouldfail = str(error)
            raise session.Failed(str(error)) from error

    def _so_far(self, elapsed_s: float) -> str:
        return f"dsocr: {elapsed_s:.0f} s, {len(self.plan.ended)} of {count(len(self.plan.planned), 'test')} ended"

    def _is_on_terminal(self) -> bool:
        reporter: Any = self.config.pluginmanager.getplugin("terminalreporter")
        is_tty = getattr(reporter, "isatty", False)  # a bool under pytest 8.2, a method under 9
        return bool(is_tty() if callable(is_tty) else is_tty)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected."""
        if report.failed:
            self.plan.uncollected.append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Report a test whose worker died, and the tests that are not run because of it."""
        from pytest_dsocr.plugin.case_scheduling import report_lost

        for left in report_lost(sched, crashitem, report):
            self.config.hook.pytest_runtest_logreport(report=left)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Note why a worker ended."""
        self._is_given_up |= bool(getattr(node, "workeroutput", {}).get("shouldfail"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect a test's report, made here or in a worker, before pytest shows it."""
        if report.when in ("teardown", DIED):
            self.plan.ended.add(report.nodeid)
        if hasattr(report, "dsocr"):
            self.result.add_report(report)
        elif report.failed:
            self.plan.others_failed = True

    @pytest.hookimpl(specname="pytest_runtest_logreport", trylast=True)
    def pytest_show_verdict_so_far(self, report: pytest.TestReport) -> None:
        """Write a line below pytest's progress: at the first WRONG case and the last case, on a terminal between them.

        The first report of a case has its verdict, because the whole case is compared at once.
        """
        case = (getattr(report, "dsocr", None) or {}).get("case")
        reporter: pytest.TerminalReporter | None = self.config.pluginmanager.getplugin("terminalreporter")
        if case is None or case["id"] in self._right or reporter is None or self.config.get_verbosity() < 0:
            return
        is_first_wrong = case["verdict"] == "WRONG" and all(self._right.values())
        self._right[case["id"]] = case["verdict"] != "WRONG"
        wrong = len(self._right) - sum(self._right.values())
        if follow := self._tests_behind_the_cases():
            compared, after_s = count(len(self._right), "case"), monotonic() - self._started_s
            line = f"all {compared} compared after {after_s:.0f} s, {wrong} WRONG; {count(follow, 'other test')} to go"
        elif is_first_wrong or (self._is_on_terminal() and monotonic() >= self._next_s):
            broke = f" from {case['first_wrong']} on" if case["first_wrong"] else ""
            line = f"{len(self._right)} compared so far, {wrong} WRONG; {case['id']} is {case['verdict']}{broke}"
        else:
            return
        self._next_s = monotonic() + SHOW_EVERY_S
        reporter.ensure_newline()
        reporter.write_line(plain(f"dsocr: {line}"), red=bool(wrong), green=not wrong)

    def _tests_behind_the_cases(self) -> int:
        """Return the number of tests of no case that have not ended, if several cases are all compared."""
        from pytest_dsocr.plugin.config import cases_of

        cases = [case.id for case in cases_of(self.config).good]
        if len(cases) < 2 or not self._right.keys() >= {*cases}:
            return 0
        return sum(not any(case in test for case in cases) for test in self.plan.not_ended)

    @pytest.hookimpl(specname="pytest_sessionfinish", tryfirst=True)
    def pytest_add_junit_properties(self, session: pytest.Session) -> None:
        """Add the run's properties to pytest's JUnit file before it is written. All workers have ended."""
        written = [one for one in session.config.pluginmanager.get_plugins() if hasattr(one, "add_global_property")]
        self.take_journal()
        if not written or self._result is None:
            return
        from pytest_dsocr.report.ci import of_run

        self.plan.exit_status = int(session.exitstatus)
        for name, value in of_run(self.result):
            for xml in written:
                xml.add_global_property(name, value)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that does not pass, and write the result."""
        self._session = session
        self._settle(session)

    @pytest.hookimpl(specname="pytest_terminal_summary", wrapper=True, tryfirst=True)
    def pytest_fold_failures(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, Any, Any]:
        """Show one failure of each cause in full, and list the causes after pytest's own list."""
        summary, stats, failed = self.summary, terminalreporter.stats, {}
        if summary:
            from pytest_dsocr.report.outcomes import FAILING

            failed = {word: stats[word] for word in FAILING if word in stats}
            stats.update((word, [*summary.folded(reports)]) for word, reports in failed.items())
        try:
            done = yield
        except Exception as error:  # a gate of another plugin, such as --benchmark-compare-fail; pytest fails by it
            self._fail_by(error, terminalreporter)
            raise
        stats.update(failed)
        if summary:
            summary.show_causes(terminalreporter)
        return done

    def _fail_by(self, error: Exception, reporter: pytest.TerminalReporter) -> None:
        """Note that another plugin's gate failed the run after its last test."""
        self.plan.gates.append(f"{type(error).__module__.partition('.')[0]} failed the run: {error}")
        self.plan.others_failed |= type(error).__name__ != "PerformanceRegression"
        if self._session is not None:
            self._session.exitstatus = self._session.exitstatus or pytest.ExitCode.TESTS_FAILED
            self._settle(self._session)
        self.pytest_terminal_summary(reporter)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the result, after the failures and before pytest's closing line."""
        if self.summary:
            self.summary.show(terminalreporter)
        for line in self.config.stash.get(UNMATCHED, []):
            from pytest_dsocr.plugin.config import own_config

            ledger = own_config(self.config).xfails
            terminalreporter.write_line(f"dsocr: {ledger} names {line}, which is no test of this run", yellow=True)

    def pytest_unconfigure(self) -> None:
        """Write the result again if pytest's exit status changed, or if a thread has compared since."""
        self.config.stash[JOURNAL].is_closed = True
        if self._session is not None and (self.take_journal() or self._session.exitstatus != self._left_as):
            self._settle(self._session)
        if self._result is not None:
            from pytest_dsocr.report.ci import append_markdown
            from pytest_dsocr.report.views import markdown

            if problem := append_markdown(markdown(self._result.document)):
                sys.stderr.write(f"dsocr: {problem}\n")

    @property
    def result(self) -> RunResult:
        """Result of the run so far."""
        if self._result is None:
            from pytest_dsocr.plugin.config import command_of, typed_options
            from pytest_dsocr.report.file import RunIdentity
            from pytest_dsocr.report.result import RunResult

            self._result = RunResult(
                self.identity or RunIdentity.now(command_of(self.config)),
                self.plan,
                options=typed_options(self.config),
                named=self.config.args,
                root=self.config.rootpath,
            )
        self._result.left = self.config.stash.get(DESELECTED, self._result.left)
        return self._result

    def take_journal(self) -> bool:
        """Check the tests' outcomes against the journal; return whether it has new entries."""
        entries = self.config.stash[JOURNAL].entries
        is_new = len(entries) > self._taken
        if is_new:
            self._taken = len(entries)
            self.result.hold(entries)
        return is_new

    @property
    def summary(self) -> Summary | None:
        """Summary for the terminal; None while tests run, or if nothing was compared."""
        if self._result is None or self._session is None:
            return None
        from pytest_dsocr.report.terminal import Summary

        return Summary(self._result, self._result.options, self.written, self.config.get_verbosity() > 0)

    def _settle(self, session: pytest.Session) -> None:
        self.take_journal()
        if self._result is None and self.out is None:
            return
        from pytest_dsocr.report.file import EXIT_STATUS, Ending

        self.plan.exit_status = int(session.exitstatus)
        if self.out is not None:
            self._write(self.out)
        if self.result.fails and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.plan.problems and self.result.ended_as is Ending.INFRASTRUCTURE:
            session.exitstatus = EXIT_STATUS[Ending.INFRASTRUCTURE]  # no file can tell it
        self._left_as = session.exitstatus

    def _write(self, out: Path) -> None:
        """Write the page of pictures, then the file that completes the result. A failure is a problem of the run."""
        from pytest_dsocr.base.files import write_whole
        from pytest_dsocr.report.file import INDEX_NAME, SUMMARY_NAME, write_json
        from pytest_dsocr.report.views import html, markdown

        try:
            result = self.result.document
            page = write_whole(out / INDEX_NAME, html(result))
            summary = write_whole(out / SUMMARY_NAME, markdown(result))
            self.written = [str(write_json(out, result, self.config.stash.get(WITNESS, None))), str(page), str(summary)]
        except DsocrError as error:
            self.plan.problems.append(f"the result was not written: {error}")
