"""``dsocr compare``: a subject held against the vendor's code, case by case."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pytest_dsocr.case import Case
from pytest_dsocr.commands.cases import cases_of
from pytest_dsocr.commands.progress import progress_bar
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.goldens import ANCHORS
from pytest_dsocr.pages import distinct, pages_in
from pytest_dsocr.parity import CaseReport
from pytest_dsocr.report.payload import of_case, of_comparison, picture_name
from pytest_dsocr.report.pictures import draw
from pytest_dsocr.sides import hold, limits_between
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup, level_of
from pytest_dsocr.vendor.live.reference import LiveReference
from pytest_dsocr.vendor.opening import Wanted, open_reference, pinned
from pytest_dsocr.vendor.recorded.recording import RecordedReference


def run(options: Namespace) -> Iterator[str]:
    """Compare the cases that ``options`` name and yield the verdicts; status 1 where one does not pass.

    Raises:
        DsocrError: on any bad option or page, and where the subject or the reference cannot answer.
    """
    setup = Setup(options.checkpoint, options.device, options.dtype, options.attn)
    with progress_bar(unit="case") as bar:
        reference = _open(options, bar)
        try:
            yield f"reference   {_told(reference, options.reference)}"
            yield from _drifted(reference, options.golden)
            cases = _cases(reference, options)
            subject = load_subject(options.subject, setup)
            yield f"subject     {options.subject}, {level_of(subject)}, {', '.join(vars(setup).values())}"
            limits = limits_between(subject, reference, setup)
            bar.reset(total=len(cases))
            reports = []
            for case in cases:
                bar.set_postfix_str(case.id)
                reports.append(hold(case, subject, reference, setup, limits))
                bar.update()
                yield from _case(reports[-1])
                if options.out:
                    draw(reports[-1], options.out)
        finally:
            reference.close()
    yield from _summary(reports)
    if options.out:
        _write_json(options.out / "compare.json", reports, reference)
        yield f"written     {options.out}: compare.json, and each page with the boxes of both sides"
    options.status = int(not all(report.passes for report in reports))


def _open(options: Namespace, bar: tqdm[Any]) -> LiveReference | RecordedReference:
    wanted = Wanted(
        resolve(options.checkpoint),
        options.reference_device or options.device,
        options.reference_dtype or options.dtype,
        options.reference_attn or options.attn,
    )

    def on_progress(what: str, done: int, total: int | None) -> None:
        bar.set_postfix_str(f"reference: {what} {done:,}" + (f" of {total:,}" if total else ""))

    return open_reference(
        options.reference, wanted, env=options.env, time_limit_s=options.time_limit, on_progress=on_progress
    )


def _told(reference: LiveReference | RecordedReference, where: Path) -> str:
    made = reference.provenance
    how = "live" if isinstance(reference, LiveReference) else f"recorded on {made.date}"
    main_file = next(iter(made.vendor_sha256.values()))[:12]
    return (
        f"{how}, {made.checkpoint}, {made.device}, {made.dtype}, {made.attention}, vendor's file {main_file} ({where})"
    )


def _drifted(reference: LiveReference | RecordedReference, golden: Path) -> Iterator[str]:
    """Tell of files that are not those that the recordings in ``golden`` are made with."""
    expected = pinned(golden) or {}
    names = [
        name for name, sha256 in reference.provenance.vendor_sha256.items() if expected.get(name, sha256) != sha256
    ]
    if names:
        yield f"note        {', '.join(names)}: not as in {golden / ANCHORS}; see dsocr vendor inspect"


def _cases(reference: LiveReference | RecordedReference, options: Namespace) -> list[Case]:
    """Give the cases asked for; of a recording, where none are named, all that it holds of the pages."""
    named = options.presets or options.prompts
    if isinstance(reference, LiveReference) or named:
        options.presets, options.prompts = options.presets or ["gundam"], options.prompts or ["markdown"]
        return cases_of(options)
    pages = [page for page in pages_in(options.pages) if isinstance(page, Path)]
    recorded = reference.recording.cases.values()
    cases = distinct(
        case.case(page.parent) for case in recorded for page in pages if case.described["page"] == page.name
    )
    if not cases:
        raise DsocrError("the recording holds none of these pages; give the pages that were recorded")
    return cases


def _case(report: CaseReport) -> Iterator[str]:
    exchange = report.exchange
    counts = ", ".join(f"{report.counts[verdict]} {verdict}" for verdict in SEVERITY[::-1] if report.counts[verdict])
    times = f"reference {exchange.reference_s:.2f} s, subject {exchange.subject_s:.2f} s"
    yield f"{report.verdict:<12}{report.case.id}: {counts}; worst error {report.worst_error:.1e}; {times}"
    if report.divergence:
        yield from (f"    {line}" for line in report.divergence.lines)
    yield from (f"    substituted  {finding}" for finding in exchange.findings)
    for comparison in report.comparisons:
        if comparison.verdict is Verdict.TIE_FLIP or not comparison.passes:
            yield f"    {comparison.verdict:<12} {comparison.what}: {comparison.measured}"
            yield from (f"                 {line}" for line in comparison.details)


def _summary(reports: Sequence[CaseReport]) -> Iterator[str]:
    """Yield a table: a row for each thing compared, a column for each verdict; the blocks of a stage share a row."""
    rows: dict[str, list[Comparison]] = {}
    for comparison in (comparison for report in reports for comparison in report.comparisons):
        stage, slash, _ = comparison.what.partition("/")
        rows.setdefault(f"{stage}/*" if slash else stage, []).append(comparison)
    yield ""
    yield f"{'compared':<22}" + "".join(f"{verdict:>14}" for verdict in SEVERITY[::-1]) + f"{'worst error':>14}"
    for what, found in rows.items():
        counts = [sum(comparison.verdict is verdict for comparison in found) for verdict in SEVERITY[::-1]]
        errors = [comparison.error for comparison in found if comparison.error is not None]
        cells = "".join(f"{count or '-':>14}" for count in counts)
        yield f"{what:<22}{cells}" + (f"{max(errors):>14.1e}" if errors else "")
    made = sum(comparison.verdict is not Verdict.NOT_COMPARED for found in rows.values() for comparison in found)
    reference_s = sum(report.exchange.reference_s for report in reports) / len(reports)
    subject_s = sum(report.exchange.subject_s for report in reports) / len(reports)
    yield ""
    yield f"{made} comparisons in {len(reports)} cases"
    yield f"a case took {reference_s:.2f} s of the reference and {subject_s:.2f} s of the subject"


def _write_json(path: Path, reports: Sequence[CaseReport], reference: LiveReference | RecordedReference) -> None:
    cases = [
        {
            **of_case(report, place=place, picture=picture_name(report.case.id)),
            "case": report.case.to_json(),
            "comparisons": [of_comparison(comparison) for comparison in report.comparisons],
        }
        for place, report in enumerate(reports)
    ]
    value = {"reference": reference.provenance.to_json(), "cases": cases}
    try:
        path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise DsocrError(f"{path} cannot be written ({error.strerror}); give a file in a folder that can") from error
