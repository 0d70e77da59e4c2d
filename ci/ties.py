"""How near two readings of a page are that a tie has parted: the session held against a recording, page by page.

    python -m ci.ties golden/vendor/mini/cpu-float32-eager --device cuda --dtype bfloat16 --attention flash_attention_2

The bounds of :mod:`pytest_dsocr.compare.after_tie` were read off what it prints, of recordings in float32 and in bf16.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.after_tie import BOXES, EDITS, LENGTH, Nearness
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.observation.case import Case
from pytest_dsocr.pages.shipped import shipped
from pytest_dsocr.reference.recorded.recording import RecordedReference, Recording
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import session_subject


def reports(setup: Setup, recording: Recording) -> Iterator[CaseReport]:
    """Yield what comes of each shipped page that was recorded."""
    subject, tokenizer = session_subject(setup), resolve(setup.checkpoint).tokenizer
    reference, limits = RecordedReference(recording), tolerances(setup.dtype, recording.provenance.dtype)
    for case in cases(recording):
        yield judge(ask(subject, reference, case, tokenizer=tokenizer), limits)


def cases(recording: Recording) -> Iterator[Case]:
    """Yield the cases, each with its page where it is shipped."""
    pages = {page.name: page for page in shipped("all")}
    for recorded in recording.cases.values():
        case = recorded.case(Path())
        if case.page.name in pages:
            yield replace(case, page=pages[case.page.name])


def nearness(report: CaseReport) -> Nearness | None:
    """Measure what its steps give after a tie; None where there is none."""
    [tokens] = report.of("tokens")
    continued = report.exchange.answer.continued
    if tokens.verdict is not Verdict.TIE_FLIP or continued is None:
        return None
    return Nearness.of(continued, report.exchange.expected.output)


def main() -> None:
    """Print a line a page, and the worst of each measure."""
    parser = argparse.ArgumentParser(prog="python -m ci.ties", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recording", type=Path)
    for name, value in (("device", "cpu"), ("dtype", "float32"), ("attention", "eager")):
        parser.add_argument(f"--{name}", default=value)
    args = parser.parse_args()
    setup = Setup(device=args.device, dtype=args.dtype, attention=args.attention)
    found: list[Nearness] = []
    for report in reports(setup, Recording.open(args.recording)):
        near = nearness(report)
        found += [near] if near else []
        read = [f"read {one.verdict}" for one in report.of("read")]
        print(report.case.id, near or "no tie", *read, flush=True)
    rests = [one for one in found if one.rest]
    print(f"{len(found)} ties; at most")
    print(f"    edits {max((one.edits / one.rest for one in rests), default=0):.2f} of the rest (allowed {EDITS})")
    print(f"    length {max((one.longer / one.rest for one in rests), default=0):.2f} of the rest (allowed {LENGTH})")
    alone = max((one.alone / one.boxes for one in found if one.boxes), default=0)
    print(f"    boxes {alone:.2f} without a partner (allowed {BOXES:.2f})")


if __name__ == "__main__":
    main()
