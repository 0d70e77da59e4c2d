"""Record what the vendor's own code reads on the odd pages into the ``odd-pages.json`` of its family.

Run where the vendor's code imports: ``python -m tests.vendor_live.record_odd_pages VENDOR_FOLDER``.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_dsocr.compare.tolerances import BY_DTYPE
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.drift import one_line_each
from pytest_dsocr.reference.environment import check_vendor_folder
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from suites.contract.asked import recorded
from suites.contract.odd_pages import ODD_PAGES
from tests.vendor_live.golden import quietly_on_cpu

BFLOAT16 = BY_DTYPE["bfloat16"]


def row(seen: ReferenceResult, text_of: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Return what was read, and how far the next best token is in ULP of bfloat16; those before it were forbidden.

    ``tie_at`` is the number of characters before the first token that is a tie in bfloat16, if there is one.
    """
    pixels = {what: getattr(seen.inputs, what) for what in PIXELS}
    chosen = [(step.best.ids.index(step.token), step.best.logits) for step in seen.steps]
    margins = [(logits[at] - logits[at + 1]) / BFLOAT16.ulp(logits[0]) for at, logits in chosen]
    tied = next((k for k, margin in enumerate(margins) if margin <= BFLOAT16.ties), None)
    tie = {} if tied is None else {"tie_at": len(text_of([step.token for step in seen.steps[:tied]]))}
    return {"text": seen.output.text, "margin_ulps": round(min(margins), 1), **tie, **pixels}


def main(vendor_folder: str) -> None:
    command = "python -m tests.vendor_live.record_odd_pages VENDOR_FOLDER"
    with tempfile.TemporaryDirectory() as folder, quietly_on_cpu():
        family = check_vendor_folder(Path(vendor_folder))
        runtime = VendorRuntime.load(Path(vendor_folder), f"{family.name}:{MINI}", command=command)
        text_of = resolve(f"{family.name}:{MINI}").tokenizer.decode
        cases = {name: page.case(name, Path(folder), family) for name, page in ODD_PAGES.items()}
        pages = {name: row(runtime.observe(case), text_of) for name, case in cases.items()}
    head = {"provenance": runtime.provenance.to_json()}
    recorded("odd-pages.json", family).write_text(one_line_each(head, {"pages": pages}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
