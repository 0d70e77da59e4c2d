"""What noise does not touch: no sign of needless work, and no count that has grown since the baseline."""

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.perf import checked_or_left_out, leave_isolated_out, leave_uncounted_out, leave_unmeasured_out
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.records.config import Config
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.timing.counts import FLAGS, flag
from pytest_dsocr.timing.run import PerfRun

pytestmark = pytest.mark.dsocr_perf


@pytest.mark.parametrize("name", FLAGS)
def test_no_red_flag(name: str, request: pytest.FixtureRequest, dsocr_config: Config, dsocr_check: Check) -> None:
    leave_isolated_out(request.node, dsocr_config)
    exact = request.getfixturevalue("dsocr_counts").exact
    found = flag(name, exact)
    if found is None:
        leave_uncounted_out(request.node, name, FLAGS[name][0], exact)
    verdict = Verdict.WRONG if found.raised else Verdict.MATCH
    dsocr_check([Comparison(ComparisonKind.TIME.name_of(name), verdict, found.measured)])


def test_counts_are_the_baselines(request: pytest.FixtureRequest, dsocr_config: Config, dsocr_check: Check) -> None:
    """Those of the baseline, or of one that was made on another host; no time is taken for it."""
    from pytest_dsocr.plugin.perf_run import against, exact_comparisons

    leave_isolated_out(request.node, dsocr_config)
    if dsocr_config.baseline_update:
        leave_out(request.node, "baseline", "they are to become the baseline's")
    run = against(dsocr_config, request.getfixturevalue("dsocr_counts"))
    if not (run.baseline or run.counts):
        leave_out(request.node, "baseline", run.no_baseline)
    dsocr_check(exact_comparisons(run))


@pytest.mark.usefixtures("_dsocr_alone")
def test_a_step_grows_with_the_cache_alone(request: pytest.FixtureRequest, dsocr_check: Check) -> None:
    """A late step is longer than an early one by no more than the positions that it attends to."""
    from pytest_dsocr.plugin.perf_run import growth

    run: PerfRun = request.getfixturevalue("dsocr_perf_run")
    if "decode.late" not in run.measured.quantities:
        leave_unmeasured_out(request.node, run, "decode.late")
    dsocr_check([checked_or_left_out(growth(run.measured), request.node)])
