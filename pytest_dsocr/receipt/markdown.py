"""The receipt as one block of Markdown, for a pull request."""

from collections.abc import Iterator

from msgspec.structs import asdict

from pytest_dsocr.base.words import HASH_CHARACTERS, count, listed, plain
from pytest_dsocr.receipt.receipt import Receipt, ReferenceFacts, SubjectFacts, ToolFacts
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
        where = f"{one.what or one.found.tests[0]} in {len(one.found.cases)} of {count(one.found.of, one.found.unit)}"
        scripts = [name for name in one.reproducer_sha256 if name.endswith(".py")]
        script = f" {count(len(scripts), 'reproducer')}: {', '.join(scripts)}" if scripts else ""
        yield from ("", f"**Cause {number}** {cell(where)}: {cell(one.found.said)}.{script and cell(script)}")
    yield from ("", "To reproduce:", "", f"    {plain(receipt.command)}", "", "To check this receipt:", "")
    yield from ("    dsocr receipt --verify receipt.json", "", f"`sha256 {receipt.sha256}`")


def _rows(receipt: Receipt) -> Iterator[tuple[str, str]]:
    yield "subject", _subject(receipt.subject)
    yield "model", "{model}, {checkpoint}/{device}-{dtype}-{attention}".format_map(asdict(receipt.subject))
    yield "reference", _reference(receipt.reference)
    yield "pages", f"{listed(receipt.pages, NAMED)}; {', '.join(receipt.presets)}; {', '.join(receipt.prompts)}"
    right = sum(case.passes for case in receipt.cases)
    yield "cases", f"{right} of {len(receipt.cases)} pass"
    unusual = [*(one.in_words(name) for name, one in receipt.limits.looser.items()), receipt.limits.budget]
    yield "limits", ", ".join(filter(None, unusual)) or "the usual ones"
    yield "comparisons", counts(receipt.counts) or "none"
    offered = [f"{level}: {listed(names, NAMED)}" for level, names in receipt.not_offered.items()]
    yield "not offered", "; ".join(offered) or "nothing"
    yield "left out", "; ".join(receipt.left_out) or "nothing"
    yield "not possible", "; ".join(receipt.not_possible) or "nothing"
    yield "tool", _tool(receipt.tool)
    yield "run", f"{receipt.started}, {receipt.run}, commit {receipt.commit or 'unknown'}"


def _subject(subject: SubjectFacts) -> str:
    source = subject.source
    known = filter(None, (source.name, source.version, source.commit and f"commit {source.commit}"))
    facts = ", ".join(known) or "its source is not known"
    return f"{subject.name} ({facts}), {subject.level}"


def _tool(tool: ToolFacts) -> str:
    changed = f"; CHANGED: {listed(tool.changed, NAMED)}" if tool.changed else ", unchanged"
    commit = f", commit {tool.commit}" if tool.commit else ""
    return f"{tool.version}{commit}, files {tool.files_sha256[:HASH_CHARACTERS]}{changed}"


def _reference(reference: ReferenceFacts) -> str:
    files = [f"{name} {value[:HASH_CHARACTERS]}" for name, value in reference.provenance.vendor_sha256.items()]
    engine = f"; the engine answered for {count(reference.cases_by_engine, 'case')}" * bool(reference.cases_by_engine)
    return f"{reference.kind}, {reference.key}; {', '.join(files) or 'no file of the vendor'}{engine}"
