"""Losses over a run's pages: means, intervals, and runs over their budget."""

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_dsocr.report.budget import Spending
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.terminal import Summary
from pytest_dsocr.report.views import html, markdown
from tests.report.made import MATCH, case_payload, payload, result

ORIGIN = "the int8 budget, declared by the subject"
ALLOWED = {"kl": 0.01, "pages": 0.0}


def loss(kl: float | str | None, pages: float = 0.0, allowed: Mapping[str, float] = ALLOWED) -> dict[str, Any]:
    known = {} if kl is None else {"kl": kl}
    return {
        "lost": {**known, "pages": pages},
        "allowed": dict(allowed),
        "origin": ORIGIN,
        "stages": {"sam": 0.001, "decoder": 0.002},
    }


def spending(*losses: dict[str, Any]) -> Spending:
    found = Spending.of([case_payload(f"page{k}", loss=one) for k, one in enumerate(losses)])
    assert found is not None
    return found


def test_without_a_budget_there_is_none() -> None:
    assert Spending.of([case_payload("a")]) is None


def test_the_mean_counts_with_its_interval_and_the_worst_page() -> None:
    found = spending(loss(0.002), loss(0.004), loss(0.012))
    kl, pages = found.lost
    assert (kl.worst, kl.where, kl.over) == (0.012, "page2", False)
    assert kl.mean == pytest.approx(0.006)
    assert kl.interval == pytest.approx((0.0, 0.006 + 4.3027 * 0.0030551), rel=1e-3)  # Student's t with 2 degrees
    assert pages.interval == pytest.approx((0.0, 0.7076), rel=1e-3)
    assert found.stages == {"sam": pytest.approx(0.001), "decoder": pytest.approx(0.002)}
    assert found.why_not == ""


def test_thirty_pages_without_a_loop_cannot_exclude_one_in_nine() -> None:
    assert spending(*[loss(0.0)] * 30).lost[1].interval == pytest.approx((0.0, 0.1157), rel=1e-3)


@pytest.mark.parametrize(
    ("losses", "why"),
    [
        ([loss(0.002), loss(0.02)], "over budget: kl 0.011"),
        ([loss("infinite")], "over budget: kl inf"),
        ([loss(0.0, pages=1.0), loss(0.0)], "over budget: pages 0.5"),
        ([loss(None, allowed={"kl": 0.01})], "nothing of the budget was measured: kl needs L2"),
        ([loss(None)], ""),
    ],
)
def test_what_is_over_or_was_not_measured_does_not_pass(losses: list[dict[str, Any]], why: str) -> None:
    assert spending(*losses).why_not.startswith(why)
    assert bool(spending(*losses).why_not) is bool(why)


def run(*losses: dict[str, Any]) -> RunResult:
    cases = [case_payload(f"page{k}", loss=one) for k, one in enumerate(losses)]
    return result(*(("passed", payload(MATCH, case=case)) for case in cases))


def test_a_run_over_its_budget_fails_and_says_so_everywhere() -> None:
    assert run(loss(0.002)).verdict == f"passes within {ORIGIN}: kl 0.002 of 0.01, pages 0 of 0"
    assert run(loss(None)).verdict == f"passes within {ORIGIN}: pages 0 of 0, kl not measured"
    over = run(loss(0.02), loss(0.03))
    assert (over.fails, str(over.ended_as), over.document.passes) == (True, "wrong", False)
    assert "kl 0.025 (0 to 0.089), allowed 0.01; the most 0.03, on page1" in over.verdict
    shown = [line.text.strip() for line in Summary(over).lines]
    assert "kl by stage: sam 0.001, decoder 0.002" in shown
    assert "| kl | 0.025 | 0 to 0.089 | 0.01 | 0.03 | page1 |" in markdown(over.document)
    assert '<td class="WRONG">kl</td><td class="number">0.025</td>' in html(over.document)
