"""Fixtures of time: they time the subject once in a run and judge each quantity against its baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_dsocr.plugin.markers import arguments_of
from pytest_dsocr.plugin.stash import PERF, leave_out

if TYPE_CHECKING:
    from pytest_dsocr.compare.verdict import Comparison
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.timing.probe.page import PageProbe
    from pytest_dsocr.timing.rounds import Measured
    from pytest_dsocr.timing.run import PerfRun


@pytest.fixture(scope="session")
def dsocr_probe(_dsocr_perf_case: Case, dsocr_config: Config, dsocr_subject: Any) -> PageProbe:
    """Return the subject on the run's first page, to be timed and counted; see ``timing.probe.page.PageProbe``."""
    from pytest_dsocr.timing.probe.page import PageProbe

    case = _dsocr_perf_case
    return PageProbe(
        dsocr_subject,
        case.page.absolute(),
        prompt=case.prompt,
        preset=case.preset,
        max_new_tokens=case.max_new_tokens,
        device=dsocr_config.device,
    )


@pytest.fixture(scope="session")
def dsocr_counts(
    pytestconfig: pytest.Config, _dsocr_perf_case: Case, dsocr_config: Config, dsocr_probe: PageProbe
) -> Measured:
    """Count tokens, operators, waits and bytes, which are equal in all rounds; see ``timing.rounds.Measured``."""
    from pytest_dsocr.plugin.loading import waiting_for
    from pytest_dsocr.plugin.perf_run import identity_of
    from pytest_dsocr.timing.rounds import Measured

    with waiting_for("the counts of the subject", pytestconfig):
        return Measured(identity_of(dsocr_config, _dsocr_perf_case), dsocr_probe.exact(), ())


@pytest.fixture(scope="session")
def dsocr_perf_run(
    request: pytest.FixtureRequest,
    _dsocr_perf_case: Case,
    dsocr_config: Config,
    dsocr_probe: PageProbe,
    dsocr_counts: Measured,
) -> PerfRun:
    """Time the page, and compare the times with the baseline; see ``timing.run.PerfRun``."""
    from pytest_dsocr.plugin.loading import waiting_for
    from pytest_dsocr.plugin.perf_run import perf_run

    slower = _slower(request, dsocr_config)
    with waiting_for("the times of the subject", request.config) as waiting:
        found = perf_run(
            request, dsocr_config, _dsocr_perf_case, dsocr_probe, dsocr_counts, slower, waiting.on_progress
        )
    request.config.stash[PERF] = found.to_json()
    return found


@pytest.fixture
def dsocr_timing(request: pytest.FixtureRequest, _dsocr_alone: None) -> Callable[[str], Comparison]:
    """Judge one quantity: ``dsocr_check([dsocr_timing("decode")])``. pytest-benchmark receives its rounds too."""
    run: PerfRun = request.getfixturevalue("dsocr_perf_run")

    def judge(quantity: str) -> Comparison:
        from pytest_dsocr.compare.verdict import Comparison, Verdict
        from pytest_dsocr.plugin.perf_run import comparison_of
        from pytest_dsocr.records.names import ComparisonKind

        if quantity not in run.measured.quantities:
            leave_unmeasured_out(request.node, run, quantity)
        _hand_over(request, run, quantity)
        if run.accepted or run.is_kept:
            return Comparison(ComparisonKind.TIME.name_of(quantity), Verdict.MATCH, run.no_baseline)
        if run.baseline is None:
            leave_out(request.node, "baseline", run.no_baseline)
        return checked_or_left_out(comparison_of(run, quantity, request.node), request.node)

    return judge


@pytest.fixture
def _dsocr_alone(request: pytest.FixtureRequest, dsocr_config: Config) -> None:
    """Skip a test of times if other workers run, or if the subject is in another process."""
    if hasattr(request.config, "workerinput"):
        leave_out(request.node, "timings", "other workers would distort the times; run suites/perf without -n")
    leave_isolated_out(request.node, dsocr_config)


@pytest.fixture(scope="session")
def _dsocr_perf_case(dsocr_config: Config) -> Case:
    """Make a case of the run's first page, prompt and preset."""
    from pytest_dsocr.engine.places import family_named
    from pytest_dsocr.pages.named import first_pages
    from pytest_dsocr.records.case import make_case
    from pytest_dsocr.timing.limits import TOKENS

    page = first_pages(dsocr_config.pages)[0]
    asked = (dsocr_config.prompts[0], dsocr_config.presets[0], dsocr_config.max_new_tokens or TOKENS)
    return make_case(page, *asked, family=family_named(dsocr_config.checkpoint))


def leave_isolated_out(item: pytest.Item, config: Config) -> None:
    """Skip a test if the subject is isolated, because its process cannot be timed from here."""
    if config.isolate:
        leave_out(item, "timings", "the subject is timed and counted in this process; run this without --dsocr-isolate")


def checked_or_left_out(found: Comparison, item: pytest.Item) -> Comparison:
    """Return a comparison, or skip the test if its times decide nothing."""
    from pytest_dsocr.compare.verdict import Verdict

    if found.verdict is Verdict.NOT_COMPARED:
        leave_out(item, "timings", found.measured)
    return found


def _slower(request: pytest.FixtureRequest, config: Config) -> Mapping[str, float]:
    """Return the allowed slowdown of quantities. Markers of the tests override the run's options."""
    found = dict(config.max_slowdown)
    for item in request.session.items:
        for mark in reversed(list(item.iter_markers("dsocr_perf"))):
            found |= arguments_of(mark)
    return found


def leave_unmeasured_out(item: pytest.Item, run: PerfRun, quantity: str) -> NoReturn:
    """Skip a test of a quantity without times: no round is usable, or there was nothing to time."""
    if run.measured.good:
        leave_uncounted_out(item, quantity, (quantity,), run.measured.exact)
    leave_out(item, "timings", f"no round can be used: {run.measured.why_spoilt}")


def leave_uncounted_out(item: pytest.Item, name: str, quantities: Sequence[str], exact: Mapping[str, int]) -> NoReturn:
    """Skip a test if the page has too few tokens, or if the subject does not offer the quantities."""
    from pytest_dsocr.compare.verdict import Reason
    from pytest_dsocr.timing.counts import too_few_tokens

    why = too_few_tokens(quantities, exact) or f"{Reason.NOT_OFFERED} by the subject"
    leave_out(item, Reason.NOT_OFFERED, f"{name}: {why}")


def _hand_over(request: pytest.FixtureRequest, run: PerfRun, quantity: str) -> None:
    """Pass the rounds to pytest-benchmark, if enabled, for its table, storage and plots."""
    from pytest_dsocr.plugin.perf_run import handed_over

    if not handed_over(request.config):
        return
    times_s = [time_ms / 1e3 for time_ms in run.measured.wall_ms(quantity)]
    clock = accumulate(step_s for time_s in times_s for step_s in (0.0, time_s))  # looked at before and after a round
    request.node.add_marker(pytest.mark.benchmark(timer=clock.__next__, group="dsocr"))
    benchmark = request.getfixturevalue("benchmark")
    benchmark.pedantic(lambda: None, rounds=len(times_s), iterations=1)
    benchmark.extra_info |= {"quantity": quantity, "identity": dict(run.measured.identity)}
