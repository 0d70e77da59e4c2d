"""The receipt as one block of Markdown, for a pull request."""

from collections.abc import Iterator

from pytest_dsocr.base.words import HASH_CHARACTERS, count, listed, plain
from pytest_dsocr.receipt.receipt import Receipt
from pytest_dsocr.report.cause import where_broke
from pytest_dsocr.report.views import cell, table
from pytest_dsocr.report.words import counts

NAMED = 5


def markdown(receipt: Receipt) -> str:
    """Return the block; text of the subject is escaped."""
    return "\n".join(_lines(receipt)) + "\n"


def _lines(receipt: Receipt) -> Iterator[str]:
    yield from (f"### pytest-dsocr {receipt.tool.version}: {receipt.ended_as}", "", cell(receipt.verdict), "")
    yield from table(("", ""), [*_rows(receipt)])
    yield ""
    made = [(stage, counts(found)) for stage, found in receipt.stages.items()]
    yield from table(("stage", "comparisons"), made)
    for number, one in enumerate(receipt.causes, 1):
        cause = one.found
        scripts = [name for name in one.reproducer_sha256 if name.endswith(".py")]
        script = f" {count(len(scripts), 'reproducer')}: {', '.join(scripts)}" if scripts else ""
        yield from ("", f"**Cause {number}** {cell(where_broke(cause))}: {cell(cause.said)}.{script and cell(script)}")
    yield from ("", "To reproduce:", "", f"    {plain(receipt.command)}", "", "To check this receipt:", "")
    yield from ("    dsocr receipt --verify receipt.json", "", f"`sha256 {receipt.sha256}`")


def _rows(receipt: Receipt) -> Iterator[tuple[str, str]]:
    sides, tool, source = receipt.sides, receipt.tool, receipt.sides.source
    known = filter(None, (source.name, source.version, source.commit and f"commit {source.commit}"))
    yield "subject", f"{sides.subject} ({', '.join(known) or 'its source is not known'}), {sides.level}"
    yield "model", f"{receipt.model}, {sides.checkpoint}/{sides.device}-{sides.dtype}-{sides.attention}"
    yield "reference", _reference(receipt)
    yield "pages", f"{listed(sides.pages, NAMED)}; {', '.join(sides.presets)}; {', '.join(sides.prompts)}"
    right = sum(case.passes for case in receipt.cases)
    yield "cases", f"{right} of {len(receipt.cases)} pass"
    unusual = [*(one.in_words(name) for name, one in receipt.looser.items()), receipt.budget]
    yield "limits", ", ".join(filter(None, unusual)) or "the usual ones"
    yield "comparisons", counts(receipt.counts) or "none"
    offered = [f"{level}: {listed(names, NAMED)}" for level, names in receipt.not_offered.items()]
    yield "not offered", "; ".join(offered) or "nothing"
    yield "left out", "; ".join(receipt.left_out) or "nothing"
    yield "not possible", "; ".join(receipt.not_possible) or "nothing"
    changed = f"; CHANGED: {listed(tool.changed, NAMED)}" if tool.changed else ", unchanged"
    commit = f", commit {tool.commit}" if tool.commit else ""
    yield "tool", f"{tool.version}{commit}, files {tool.files_sha256[:HASH_CHARACTERS]}{changed}"
    yield "run", f"{receipt.started}, {receipt.run}, commit {receipt.commit or 'unknown'}"


def _reference(receipt: Receipt) -> str:
    sides, by_engine = receipt.sides, sum(case.by_engine for case in receipt.cases)
    files = [f"{name} {value[:HASH_CHARACTERS]}" for name, value in sides.provenance.vendor_sha256.items()]
    engine = f"; the engine answered for {count(by_engine, 'case')}" if by_engine else ""
    return f"{sides.reference}, {sides.key}; {', '.join(files) or 'no file of the vendor'}{engine}"
