"""Additions to a test's report: its comparisons, and the reason if it does not pass."""

from collections.abc import Generator, Iterable

import pytest
from msgspec import to_builtins

from pytest_dsocr.base.errors import OF_MESSAGE, DsocrError, bounded, is_of_machine, message_of, traced
from pytest_dsocr.base.words import COLUMNS, count, fit
from pytest_dsocr.compare.verdict import Comparison, Reason
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.elapsed import elapsed_so_far
from pytest_dsocr.plugin.lost_cuda import stop_without_cuda
from pytest_dsocr.plugin.markers import is_ours
from pytest_dsocr.plugin.stash import CASES, CHECK, CONFIG, JOURNAL, LEFT_OUT, LOADED, NOTES, PERF, RUN
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.report.case_result import Fault
from pytest_dsocr.report.ci import PREFIX, of_test
from pytest_dsocr.report.comparison_result import ComparisonResult
from pytest_dsocr.report.outcomes import TestResult, outcome_of, reason_of
from pytest_dsocr.report.worker_report import WorkerReport
from pytest_dsocr.subjects.loading import ENGINE
from pytest_dsocr.subjects.protocol import NotOfferedError
from pytest_dsocr.timing.baseline import NoBaselineError
from pytest_dsocr.timing.limits import DEFAULT

KNOWN = "known failure"


class LastWord:
    """Outermost hook of a report. It is registered after every conftest, so none can undo its work."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show our errors as messages, fail a test with failing comparisons, and attach its comparisons."""
        report = yield
        if is_ours(item):
            error = call.excinfo.value if call.excinfo else None
            stop_without_cuda(item, error)
            if isinstance(error, DsocrError):
                _report_error(item, error, report)
            _fail_if_skipped(item, report)
            check = item.stash.get(CHECK, None)
            if check is not None:
                _fail_if_nothing_compared(item, check, report)
                _hold(item, check, call, report)
            has_more = report.when == "teardown" and check is not None and len(check.made) > check.reported
            if report.when == "call" or report.outcome != "passed" or has_more:
                _attach(item, error, report)
            if check is not None and report.when == "teardown":
                check.is_over = True
        return report


def _fail_if_skipped(item: pytest.Item, report: pytest.TestReport) -> None:
    """Fail a skipped test if ``--dsocr-no-skip`` is set."""
    config = item.config.stash[CONFIG]
    is_skipped = report.skipped and not hasattr(report, "wasxfail")
    if is_skipped and config.no_skip and item.stash.get(LEFT_OUT, None) not in config.allow_missing:
        _fail(report, f"skipped, and --dsocr-no-skip is set: {reason_of(report)}")


def _fail_if_nothing_compared(item: pytest.Item, check: Check, report: pytest.TestReport) -> None:
    """Fail a test that uses ``dsocr_check`` and has compared nothing by its last phase."""
    if report.when == "call":
        check.passed = report.passed
    last = "teardown" if _may_compare_last(item) else "call"
    if report.when == last and report.passed and check.passed and not check.made:
        _fail(report, "the test uses dsocr_check and compared nothing; call it")


def _hold(item: pytest.Item, check: Check, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Fail a test that went on after a comparison that does not pass, unless it is an expected failure."""
    if report.failed or (report.when == "setup" and report.passed):
        return
    made = check.made[check.reported :] if report.when == "teardown" else check.made
    failing = [one for one in made if not one.passes]
    if failing and _is_expected(item, call, report):
        item.config.stash[JOURNAL].add(item.nodeid, check.attempt, expected=True)
    elif failing:
        what = f"{count(len(failing), 'comparison')} of dsocr_check did not pass, and the test went on"
        first = f"{failing[0].what}: {failing[0].measured}"
        _fail(report, f"{what}; let dsocr_check fail it, or mark it xfail\n{first}")


def _is_expected(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> bool:
    """Return whether a test failed as its author expects, and no conftest alone says so."""
    is_marked = item.get_closest_marker("xfail") is not None
    is_called = call.excinfo is not None and isinstance(call.excinfo.value, pytest.xfail.Exception)
    return hasattr(report, "wasxfail") and report.skipped and (is_marked or is_called)


def _declared(item: pytest.Item, report: pytest.TestReport) -> str | None:
    """Return why a test that was not run may leave its case unjudged: ``xfail(run=False)`` declares a known failure."""
    is_marked = any(not mark.kwargs.get("run", True) for mark in item.iter_markers("xfail"))
    return KNOWN if is_marked and report.when == "setup" and hasattr(report, "wasxfail") else None


def _may_compare_last(item: pytest.Item) -> bool:
    """Return whether a fixture may compare when it is torn down."""
    info = item._fixtureinfo if isinstance(item, pytest.Function) else None
    by_name = info.name2fixturedefs.values() if info else ()
    return "request" in getattr(info, "argnames", ()) or any(
        "dsocr_check" in one.argnames for definitions in by_name for one in definitions
    )


def _attach(item: pytest.Item, error: BaseException | None, report: pytest.TestReport) -> None:
    """Attach a test's findings, and give it properties instead of those of an earlier phase or try."""
    sent = _sent(item, error, report)
    if check := item.stash.get(CHECK, None):
        check.reported = len(check.made)
    vars(report)["dsocr"] = to_builtins(sent)  # xdist sends on whatever a report holds
    found = TestResult(item.nodeid, outcome_of(report), sent=sent)
    others = [one for one in item.user_properties if not one[0].startswith(PREFIX)]
    item.user_properties[:] = [*others, *of_test(found, _case_id(item), item.config.stash.get(RUN, None))]
    report.user_properties = list(item.user_properties)


def _report_error(item: pytest.Item, error: DsocrError, report: pytest.TestReport) -> None:
    from pytest_dsocr.reference.protocol import NoRecordingError, NotRecordedError, ReferenceFaultError

    message = bounded(message_of(error), OF_MESSAGE)
    if isinstance(error, NotOfferedError):
        item.stash[LEFT_OUT] = str(Reason.NOT_OFFERED)
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {message}")
        return
    if isinstance(error, NoBaselineError):
        item.stash[LEFT_OUT] = "baseline"
        message = f"NOT-COMPARED: {message}"
    if isinstance(error, NotRecordedError | NoRecordingError):
        message += _without_vendor(item.config)
    if isinstance(error, NotRecordedError | ReferenceFaultError) and hasattr(report, "wasxfail"):
        report.outcome = "failed"  # a test that is known to fail has failed only where it was compared
        del report.wasxfail
    if isinstance(error, NotRecordedError):
        item.stash[LEFT_OUT] = "recording"
        if "recording" in item.config.stash[CONFIG].allow_missing:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {message}")
            return
        message = f"NOT-COMPARED: {message}; or declare that it may be missing: --dsocr-allow-missing=recording"
    report.longrepr = message if error.__cause__ is None else f"{message}\n\n{traced(error.__cause__)}"


def _without_vendor(config: pytest.Config) -> str:
    """Say what to do without the vendor's files; where the engine is the subject it cannot be the reference."""
    own = config.stash[CONFIG]
    if own.reference is not None or (own.subject == ENGINE and LOADED in config.stash):
        return ""
    return "; without the vendor's files, let the engine stand in: --dsocr-reference=engine"


def _fail(report: pytest.TestReport, why: str) -> None:
    report.outcome, report.longrepr = "failed", why
    vars(report).pop("wasxfail", None)


def _sent(item: pytest.Item, error: BaseException | None, report: pytest.TestReport) -> WorkerReport:
    check, case_id, is_ours = item.stash.get(CHECK, None), _case_id(item), isinstance(error, DsocrError)
    is_fault = is_ours or is_of_machine(error)
    return WorkerReport(
        case=item.config.stash.get(CASES, {}).get(case_id),
        comparisons=[ComparisonResult.of(one) for one in check.made] if check else [],
        looser=check.looser | _slower(check.made, item.config) if check else {},
        page=check.page if check else None,
        left_out=item.stash.get(LEFT_OUT, None) or _declared(item, report),
        of_case=case_id,
        notes=[*item.config.stash.get(NOTES, ())],
        cause=getattr(error, "dsocr", None),
        refused=getattr(error, "refused", ""),
        promised="dsocr_check" in getattr(item, "fixturenames", ()) or item.get_closest_marker("dsocr") is not None,
        elapsed=elapsed_so_far(item.config),
        reason=message_of(error) if error and is_ours else _reason(report),
        fault=Fault.of(error, case_id or None) if error and is_fault and LEFT_OUT not in item.stash else None,
        perf=item.config.stash.get(PERF, None),
        run=item.config.stash.get(RUN, None),
    )


def _slower(made: Iterable[Comparison], config: pytest.Config) -> dict[str, tuple[float, float, str]]:
    """Return the limits of times that are wider than usual, where times were compared."""
    own = config.stash[CONFIG]
    limits = own.max_slowdown if any(one.name.kind is ComparisonKind.TIME for one in made) else {}
    by = own.given_by.get("max_slowdown", "")
    return {f"slower {name}": (limit, DEFAULT, by) for name, limit in limits.items() if limit > DEFAULT}


def _reason(report: pytest.TestReport) -> str | None:
    """Return why it was skipped, or failed for that; of an error of its own the first line."""
    if crash := getattr(report.longrepr, "reprcrash", None):
        return fit(crash.message.partition("\n")[0], COLUMNS)
    return reason_of(report) if report.skipped or isinstance(report.longrepr, str) else None


def _case_id(item: pytest.Item) -> str:
    """Return the id of the test's case, where it has one: the plugin's, or one that the user made."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return getattr({**params, **getattr(item, "funcargs", {})}.get("dsocr_case"), "id", "")
