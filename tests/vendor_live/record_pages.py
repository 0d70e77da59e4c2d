"""Record what the vendor's ``infer_multi`` hands to ``generate`` into its ``pages-pillow-*.json``.

    python -m tests.vendor_live.record_pages UNLIMITED_FOLDER

With the synthetic tokenizer. What it asks is what a recording names already, be it of another Pillow.
"""

import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.reference.drift import one_line_each
from pytest_dsocr.reference.goldens import facts_of
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from pytest_dsocr.reference.vendor_code.observe import inputs_of
from pytest_dsocr.reference.vendor_code.runtime import synthetic_tokenizer
from suites.contract.pages import write_page
from tests.contract.recorded import digest
from tests.recordings import FOLDER, recording_of
from tests.vendor_live.golden import provenance, quietly_on_cpu, without_weights


def handed(
    code: VendorCode, pages: Sequence[Path], image_size: int, prompt: str, tokenizer: Any
) -> dict[str, Tensor] | str:
    """Return the inputs that ``infer_multi`` hands to ``generate``, or the name of its error."""
    model = without_weights(code)
    with tempfile.TemporaryDirectory() as out, quietly_on_cpu():
        try:
            model.infer_multi(tokenizer, prompt, [*map(str, pages)], out, image_size)
        except Exception as error:
            return type(error).__name__
    return inputs_of(model.seen)


def main(vendor_folder: str) -> None:
    code, tokenizer = load_vendor_code(Path(vendor_folder)), synthetic_tokenizer(DEEPSEEK_OCR.vocab_size)
    before, folder = recording_of("pages", code.family), facts_of(FOLDER, code.family)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in before["together"]:
            asked = {name: case[name] for name in ("pages", "image_size", "prompt")}
            pages = [write_page(name, Path(scratch)) for name in case["pages"]]
            seen = handed(code, pages, case["image_size"], case["prompt"], tokenizer)
            rows.append({**asked, **({"error": seen} if isinstance(seen, str) else digest(seen))})
    made = provenance(code, "record_pages UNLIMITED_FOLDER", ["generate: notes its arguments"])
    path = folder / f"pages-pillow-{version('pillow').split('.')[0]}.json"
    head = {"provenance": {**made, "resampling": resampling()}}
    path.write_text(one_line_each(head, {"together": rows}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
