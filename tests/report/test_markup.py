"""Text of a run is never markup, never steers a terminal, and its page needs no network."""

from msgspec import structs

from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.report.file import RunIdentity
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.views import cell, html, markdown
from tests.report.made import MATCH, case_payload, payload, result, run_payload
from tests.report.markup import Page
from tests.report.test_views import BROKEN, RUNS, document, texts

EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>\" onclick=\"x | `x` @a [l](h) **b**\n## t\x1b[2J"


def evil() -> RunResult:
    wrong = Comparison(EVIL, Verdict.WRONG, EVIL)
    case = case_payload(EVIL, wrong, **{**BROKEN, "first_wrong": EVIL, "cause": EVIL}, findings=[EVIL], picture=None)
    case = structs.replace(case, picture=EVIL)
    message = payload(wrong, not_compared(EVIL, Reason.NOT_OFFERED), run=run_payload(subject=EVIL, where=EVIL))
    raised = payload(fault={"case": EVIL, "stage": EVIL, "why": EVIL, "infrastructure": False})
    lost = payload(left_out="gpu", reason=EVIL)
    run = result(
        ("failed", structs.replace(message, case=case)),
        ("skipped", lost),
        ("error", raised),
        ("xfailed", payload()),
        reason=EVIL,
    )
    run.identity = RunIdentity(EVIL, EVIL, EVIL, EVIL)
    run.notes.append(EVIL)
    run.plan.uncollected.append(EVIL)
    run.plan.add([EVIL])
    run.add(EVIL, "failed", payload())
    return run


def test_nothing_of_a_run_is_markup_or_steers_a_terminal() -> None:
    page, plain = Page(html(evil().document)), [Page(html(document(name))) for name in RUNS]
    assert {tag for tag, _ in page.elements} <= {tag for one in plain for tag, _ in one.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)") >= 15
    for secret in ("<", "`", "@", "|", "*", "[", "\n"):
        assert secret not in cell(EVIL).replace("\\" + secret, "")
    summary = [line for line in markdown(evil().document).splitlines() if not line.startswith("    ")]
    assert "## t" not in summary
    assert not any("<script" in line.replace("\\<script", "") for line in summary)
    assert "".join(texts(evil())).isprintable()


def test_the_page_asks_nothing_of_a_network() -> None:
    page = Page(html(document("breaks once, proven")))
    linked = [text for _, attributes in page.elements for name, text in attributes.items() if name in ("src", "href")]
    assert linked
    assert not [link for link in linked if link is None or ":" in link or link.startswith("/")]
    [policy] = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script" not in policy


def test_a_picture_may_have_any_name_and_a_difference_is_no_markup() -> None:
    page = html(result(("passed", payload(MATCH, case=case_payload(picture="pages/a page & more?.jpg")))).document)
    found = [*(image["src"] for image in Page(page).all("img")), *(link["href"] for link in Page(page).all("a"))]
    assert [link for link in found if link != "#case-1"] == ["pages/a%20page%20%26%20more%3F.jpg"] * 2
    assert "<del>ward</del><ins>word</ins>" in html(document("text alone"))
