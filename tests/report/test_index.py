"""The page of pictures: whole, well-formed, without a network, and with nothing in it that a model could have meant."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.text import compare_text
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.cost.roof import Roof
from pytest_dsocr.cost.roofline import Bound, devices
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.perf.against import PerfRun
from pytest_dsocr.report.file import RunIdentity
from pytest_dsocr.report.html import html, write_index
from tests.perf.made import measured
from tests.report.made import DRIFT, MATCH, WRONG, case_payload, payload, run_payload
from tests.report.test_result import FAULT, result

EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>\" onmouseover=\"alert(3)"
VOID = frozenset(("meta", "img"))


class Page(HTMLParser):
    """What a browser would find; raises where a tag is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def whole() -> dict[str, Any]:
    """A result with everything in it."""
    broken = case_payload(
        "b",
        WRONG,
        compare_text("a <b>word</b>", "a <b>ward</b>", 0.0),
        verdict="WRONG",
        passes=False,
        first_wrong="clip.page",
        cause="the quick GELU",
        findings=["right with the reference's pixels"],
        place=1,
        worst_error="infinite",
    )
    return result(
        ("passed", payload(MATCH, DRIFT, run=run_payload(), case=case_payload("a", MATCH, DRIFT))),
        ("failed", payload(WRONG, not_compared("sam.page/0", Reason.NOT_OFFERED), case=broken)),
        ("error", payload(fault=FAULT)),
        ("skipped", payload(left_out="recording", reason="lost page")),
        ("xfailed", payload()),
        reason="the reason",
    ).to_json()


def test_every_case_is_there_with_its_picture_and_what_broke() -> None:
    page = Page(html(whole()))
    assert [image["src"] for image in page.all("img")] == ["pages/a.jpg", "pages/b.jpg"]
    assert [article.get("class") for article in page.all("article")] == [None, "fails"]
    for words in (
        *("2 of 5 tests failed", "recorded on 2026-11-21, mini/cpu-float32-eager", "session, L2"),
        *("3 comparisons in 2 cases: 1 WRONG, 1 DRIFT, 1 MATCH; 1 not made", "L3: sam.page/0", "lost page"),
        *("b in prefill: the subject's prefill raised", "test_case.py::test[1]", "pytest suites", "the reason"),
        *(
            "first wrong: clip.page, the first that was compared",
            "check the quick GELU",
            "right with the reference's pixels",
            "infinite",
        ),
        *("relative error 3.2e-07 (allowed 1e-04)", "3.2e-07"),
    ):
        assert words in page.text


def test_a_text_that_differs_is_shown_as_a_diff_without_marks() -> None:
    said = whole()
    page = Page(html(said))
    assert "a <b>wardword</b>" in page.text
    assert "<del>ward</del><ins>word</ins>" in html(said)
    assert "{+" not in page.text


def test_a_commit_has_twelve_digits_and_says_whether_files_differ() -> None:
    for commit, told in (("a1" * 20, "a1" * 6), ("b2" * 20 + "-dirty", "b2" * 6 + "-dirty")):
        assert f"commit {told}\n" in Page(html({**whole(), "commit": commit})).text


def test_what_is_not_offered_is_told_once_and_not_in_every_case() -> None:
    left_out = [not_compared(f"sam.page/{k}", Reason.NOT_OFFERED) for k in range(3)]
    case = case_payload("a", MATCH, *left_out)
    page = Page(html(result(("passed", payload(MATCH, *left_out, case=case))).to_json()))
    assert page.text.count("sam.page/1") == 1
    assert page.text.count("input_ids") == 1


def test_nothing_of_a_run_is_markup() -> None:
    evil = Comparison(EVIL, Verdict.WRONG, EVIL)
    case = case_payload(
        EVIL, evil, first_wrong=EVIL, cause=EVIL, findings=[EVIL], passes=False, verdict="WRONG", picture=EVIL
    )
    told = payload(evil, not_compared(EVIL, Reason.NOT_OFFERED), case=case, run=run_payload(subject=EVIL, where=EVIL))
    lost, raised = (
        payload(left_out="gpu", reason=EVIL),
        payload(fault={"case": EVIL, "stage": EVIL, "why": EVIL, "infrastructure": False}),
    )
    made = result(("failed", told), ("skipped", lost), ("error", raised), ("xfailed", payload()), reason=EVIL)
    made.identity = RunIdentity(EVIL, EVIL, EVIL, EVIL)
    made.notes.append(EVIL)
    made.plan.uncollected.append(EVIL)
    made.plan.add([EVIL])
    made.add(EVIL, "failed", payload())
    page, plain = Page(html(made.to_json())), Page(html(whole()))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)") >= 15


def test_the_page_asks_nothing_of_a_network() -> None:
    page = Page(html(whole()))
    linked = [value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")]
    assert linked
    assert not [link for link in linked if link is None or ":" in link or link.startswith("/")]
    [policy] = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script" not in policy


@pytest.mark.parametrize("picture", [None, "pages/a page & more?.jpg"])
def test_a_case_may_have_no_picture_and_a_picture_any_name(picture: str | None) -> None:
    made = result(("passed", payload(MATCH, case=case_payload("a", picture=picture))))
    page = Page(html(made.to_json()))
    found = [*(image["src"] for image in page.all("img")), *(link["href"] for link in page.all("a"))]
    assert found == ([] if picture is None else ["pages/a%20page%20%26%20more%3F.jpg"] * 2)


def test_a_run_that_compared_nothing_has_a_page_as_well(tmp_path: Path) -> None:
    path = write_index(result(("passed", payload())).to_json(), tmp_path)
    assert path == tmp_path / "index.html"
    assert "no comparison was made" in Page(path.read_text(encoding="utf-8")).text


def test_a_subject_of_one_method_shows_no_tokens_and_is_told_all_the_same() -> None:
    case = case_payload("a", tokens={"reference": 3, "subject": None})
    assert "seconds: 1.50" in Page(html(result(("passed", payload(MATCH, case=case))).to_json())).text


def test_what_is_in_the_way_is_told(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match="cannot be written"):
        write_index(whole(), tmp_path / "absent")


def test_times_are_told_under_the_roof_of_the_device() -> None:
    roof = Roof(devices()["h200"], "bfloat16", {"sam": Bound(7.0, 7.0, 1.0), "page": Bound(20.0, 9.0, 16.0)})
    run = PerfRun(measured({"tokenizer": [5.0] * 3, "sam": [12.0] * 3, "page": [100.0] * 3}), roof=roof)
    text = " ".join(Page(html({**whole(), "perf": run.to_json()})).text.split())
    assert "sam12 ms7 ms58.3%compute-bound" in text
    assert "page100 ms20 ms20.0%not known" in text
    assert devices()["h200"].source in text
    without = Page(html({**whole(), "perf": PerfRun(run.measured).to_json()})).text
    assert "roof" not in without
