"""Two results: what became wrong, right, slower or faster, what is not compared any more, and what is new."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import convert
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.report.budget import Spending, Spent
from pytest_dsocr.report.difference import ChangeKind, DiffStatus, ResultChange, ResultDifference, difference
from pytest_dsocr.report.difference_lines import lines, markdown, verdict
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from tests.report.made import (
    BAD,
    CASE,
    DRIFT,
    GOOD,
    MATCH,
    OPEN,
    RIGHT_CLIP,
    SLOWER,
    WRONG,
    Ended,
    case_payload,
    clip,
    night,
    payload,
    perf,
)

BASELINE = {"made": "2026-11-20", "commit": "ab"}


def decoded(*tests: Ended, **changes: Any) -> RunJson:
    """Return the result of a night, read from its file."""
    return convert(night(*tests, **changes), RunJson)


def named(changes: list[ResultChange]) -> list[tuple[str, str]]:
    return [(one.case, one.what) for one in changes]


@pytest.mark.parametrize(
    ("old", "new", "where", "status"),
    [
        (GOOD, GOOD, None, DiffStatus.NOTHING_WORSE),
        (BAD, BAD, None, DiffStatus.NOTHING_WORSE),
        (GOOD, clip(replace(DRIFT, what="clip.page")), None, DiffStatus.NOTHING_WORSE),
        (GOOD, BAD, ChangeKind.WRONG, DiffStatus.WRONG),
        (OPEN, BAD, ChangeKind.WRONG, DiffStatus.WRONG),
        (OPEN[:1], BAD, ChangeKind.NEW_WRONG, DiffStatus.WRONG),
        (BAD, GOOD, ChangeKind.RIGHT, DiffStatus.NOTHING_WORSE),
        (OPEN[:1], GOOD, ChangeKind.NEW, DiffStatus.NOTHING_WORSE),
        (GOOD, OPEN, ChangeKind.LEFT, DiffStatus.NOT_COMPARABLE),
        (BAD, OPEN, ChangeKind.LEFT, DiffStatus.NOT_COMPARABLE),
        (GOOD, GOOD[:1], ChangeKind.LEFT, DiffStatus.NOT_COMPARABLE),
    ],
)
def test_a_change_is_called_by_its_name(
    old: tuple[Ended, ...], new: tuple[Ended, ...], where: ChangeKind | None, status: DiffStatus
) -> None:
    found = difference(decoded(*old), decoded(*new))
    reported = {
        kind for kind, changes in found.changes.items() if any(what == "clip.page" for _, what in named(changes))
    }
    assert (reported, found.status) == ({where} - {None}, status)


def test_what_is_wrong_counts_before_what_was_lost_and_that_before_what_is_slower() -> None:
    def status(*kinds: ChangeKind) -> DiffStatus:
        return ResultDifference(
            changes={kind: [ResultChange("a", "sam", "", "")] * (kind in kinds) for kind in ChangeKind}
        ).status

    assert status(ChangeKind.WRONG, ChangeKind.LEFT, ChangeKind.SLOWER) is DiffStatus.WRONG
    assert status(ChangeKind.LEFT, ChangeKind.SLOWER) is DiffStatus.NOT_COMPARABLE
    assert status(ChangeKind.SLOWER) is DiffStatus.SLOWER
    assert status(ChangeKind.FASTER, ChangeKind.NEW, ChangeKind.RIGHT) is DiffStatus.NOTHING_WORSE


def paced(ratio: float, baseline: Mapping[str, str] = BASELINE, wide: float = 0.01) -> RunJson:
    """Return a night with a decode of this share of the baseline's time, and no prefill."""
    decode = Judgement("decode", TimingVerdict.SAME, 10.0, 10 * ratio, ratio, ratio - wide, ratio + wide, 0.05, 24, 24)
    none = Judgement("prefill", TimingVerdict.NOT_COMPARED, 0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0, 0)
    return decoded(*GOOD, perf={**perf(decode, none), "baseline": baseline})


@pytest.mark.parametrize(
    ("new", "status", "slower", "faster"),
    [
        (1.10, DiffStatus.SLOWER, 1, 0),
        (1.04, DiffStatus.NOTHING_WORSE, 0, 0),  # apart, and within what is allowed
        (0.90, DiffStatus.NOTHING_WORSE, 0, 1),
        (1.00, DiffStatus.NOTHING_WORSE, 0, 0),
    ],
)
def test_times_are_distinguished_by_their_intervals_and_by_what_is_allowed(
    new: float, status: DiffStatus, slower: int, faster: int
) -> None:
    found = difference(paced(1.0), paced(new))
    assert (found.status, len(found.changes[ChangeKind.SLOWER]), len(found.changes[ChangeKind.FASTER])) == (
        status,
        slower,
        faster,
    )
    overlap = difference(paced(1.0, wide=0.1), paced(new, wide=0.1))
    assert overlap.changes[ChangeKind.SLOWER] == overlap.changes[ChangeKind.FASTER] == []


def test_what_is_compared_only_where_it_fails_is_mended_by_its_test() -> None:
    read = replace(WRONG, what="read")
    wrong = ("failed", payload(RIGHT_CLIP, read, case=CASE))
    mended = difference(decoded(GOOD[0], wrong), decoded(*GOOD))
    assert (named(mended.changes[ChangeKind.RIGHT]), mended.changes[ChangeKind.LEFT]) == ([("a", "read")], [])
    lost = difference(decoded(GOOD[0], wrong), decoded(*OPEN))
    assert ("a", "read") in named(lost.changes[ChangeKind.LEFT])


def test_times_against_other_baselines_are_not_compared_and_this_is_reported() -> None:
    found = difference(paced(1.0), paced(2.0, {"made": "2026-11-21", "commit": "cd"}))
    assert (found.changes[ChangeKind.SLOWER], found.status) == ([], DiffStatus.NOTHING_WORSE)
    assert "common baseline" in found.times_left_out
    assert difference(paced(1.0), decoded(*GOOD)).times_left_out == "only one of the two measured times"


def test_other_references_runs_of_nothing_and_other_cases_are_not_comparable() -> None:
    run = night(*BAD)["run"]
    for change, why in (
        ({"key": "mini/nvidia-h200-bfloat16-eager"}, "the references' keys differ: mini/cpu"),
        ({"provenance": {**run["provenance"], "vendor_sha256": {"a.py": "00"}}}, "the vendor's files differ"),
        ({"provenance": {**run["provenance"], "checkpoint_sha256": "b"}}, "the checkpoints' weights differ"),
    ):
        found = difference(decoded(*GOOD), decoded(*BAD, run={**run, **change}))
        assert found.status is DiffStatus.NOT_COMPARABLE
        assert [one[: len(why)] for one in found.obstacles] == [why]
    assert difference(decoded(*GOOD), decoded(*GOOD, run=None)).obstacles
    other = decoded(("passed", payload(MATCH, case=case_payload("b"))))
    assert difference(decoded(*GOOD), other).obstacles == ["they have no comparison in common"]


LIMITED = night(*GOOD)["run"]
SPENDING = Spending(1, "a budget", [Spent("characters", 0.0, None, 0.0, "a", 0.08, over=False)], {}, [])


def limited(**settings: Any) -> dict[str, Any]:
    """Return a run with these options."""
    return {"run": {**LIMITED, "settings": {**LIMITED["settings"], **settings}}}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (limited(tolerances={"text": 1.0, "boxes": 99}), "text boxes"),
        (limited(quantization_budget={"kl": 0.1}), "budget kl"),
        (limited(max_slowdown={"*": 9.0}), "slower *"),
        (limited(max_new_tokens=1), "max_new_tokens"),
        (limited(repeat=2), "repeat"),
        ({"run": {**LIMITED, "dtype": "bfloat16"}}, "dtype"),
        ({"looser": {"seam": {"allowed": 1.0, "usual": 1e-4, "by": "", "tests": 1}}}, "seam"),
        ({"budget": SPENDING}, "budget characters"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_other_limits_are_not_comparable_and_are_named(change: dict[str, Any], names: str, reverse: bool) -> None:
    both = [decoded(*GOOD), decoded(*GOOD, **change)]
    found = difference(*(both[::-1] if reverse else both))
    assert found.status is DiffStatus.NOT_COMPARABLE
    [obstacle] = found.obstacles
    for name in re.findall(r"budget \w+|slower \S|\w+", names):
        assert f" {name} " in obstacle


def test_what_was_never_compared_did_not_become_wrong() -> None:
    new = [clip(WRONG, "failed")[1], ("failed", payload(replace(WRONG, what="sam.page"), case=case_payload("b")))]
    found = difference(decoded(*GOOD), decoded(GOOD[0], *new))
    assert (named(found.changes[ChangeKind.WRONG]), named(found.changes[ChangeKind.NEW_WRONG])) == (
        [("a", "clip.page")],
        [("b", "sam.page")],
    )


def test_it_is_reported_line_by_line_and_as_markdown(snapshot: SnapshotAssertion) -> None:
    said, now = (
        {"text": f"{word} of May", "boxes": [["title", 1, 2, 3, k]]} for k, word in enumerate(("Minutes", "Minuets"))
    )
    old = decoded(*GOOD, ("passed", payload(MATCH, case=case_payload("b", said=said))))
    new = decoded(BAD[1], SLOWER, ("passed", payload(MATCH, case=case_payload("b", said=now))))
    found = difference(old, new)
    assert "\n".join([*lines(found, old, new), "", markdown(found, old, new)]) == snapshot
    other = decoded(*GOOD, run=None)
    assert markdown(difference(old, other), old, other) == snapshot
    assert verdict(found) in markdown(found, old, new)
