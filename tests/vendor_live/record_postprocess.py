"""Record what the vendor's own ``infer`` makes of the outputs in ``golden/vendor/postprocess.json``.

Run where the vendor's code imports: ``python -m tests.vendor_live.record_postprocess VENDOR_FOLDER``. The
weights play no part: a ``generate`` that returns one token and a tokenizer that decodes it to the wanted text stand
in for them; every line after the decoding is the vendor's.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from pytest_dsocr.reference.drift import one_line_each
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from tests.recordings import FOLDER
from tests.vendor_live.golden import provenance, quietly_on_cpu

GOLDEN = FOLDER / "postprocess.json"
OUTLINE_WIDTHS_PX = (2, 4)  # the vendor draws its fills and label backgrounds 1 px wide


def without_weights(code: VendorCode) -> Any:
    """Return an object of the vendor's class that has its ``infer`` and generates one token, whatever the input."""

    def generate(self: Any, input_ids: Tensor, **_: Any) -> Tensor:
        return torch.cat([input_ids, torch.ones(1, 1, dtype=torch.long)], dim=1)

    bases = (code.modeling.DeepseekOCRForCausalLM,)
    return type("WithoutWeights", bases, {"__init__": nn.Module.__init__, "generate": generate})()


def record(code: VendorCode, text: str, size_px: tuple[int, int], folder: Path) -> dict[str, Any]:
    """Run the vendor's ``infer`` on one output and give what it read, drew and wrote, and its error if it raised."""
    page, out = folder / "page.png", folder / "out"
    Image.new("RGB", size_px, "white").save(page)
    tokenizer = mock.Mock(eos_token_id=1, encode=lambda *_, **__: [], decode=lambda *_, **__: text)
    error = None
    with quietly_on_cpu(), _listening(code.modeling) as heard:
        try:
            without_weights(code).infer(tokenizer, "<image>", str(page), str(out), 512, 512, False, save_results=True)
        except Exception as raised:
            error = type(raised).__name__
    return {
        "text": text,
        "error": error,
        **heard,
        "mmd": (out / "result.mmd").read_bytes().decode(),
        "figures": {path.name: Image.open(path).size for path in sorted((out / "images").iterdir())},
        "files": sorted(path.name for path in out.iterdir() if path.is_file()),
    }


@contextlib.contextmanager
def _listening(modeling: Any) -> Iterator[dict[str, list[Any]]]:
    """Note the spans that the vendor's expression finds and the corners of every outline it draws, in pixels."""
    heard: dict[str, list[Any]] = {"spans": [], "outlines": []}
    find, rectangle = modeling.re_match, ImageDraw.ImageDraw.rectangle

    def noted_find(text: str) -> Any:
        found = find(text)
        heard["spans"] += [list(span) for span in found[0]]
        return found

    def noted_rectangle(draw: Any, corners: Any, **style: Any) -> None:
        if style.get("width") in OUTLINE_WIDTHS_PX:
            heard["outlines"].append(corners)
        rectangle(draw, corners, **style)

    with (
        mock.patch.object(modeling, "re_match", noted_find),
        mock.patch.object(ImageDraw.ImageDraw, "rectangle", noted_rectangle),
    ):
        yield heard


def main(vendor_folder: str) -> None:
    code, before = load_vendor_code(Path(vendor_folder)), json.loads(GOLDEN.read_text(encoding="utf-8"))
    width, height = before["page_size"]
    cases = {}
    for name, case in before["cases"].items():
        with tempfile.TemporaryDirectory() as folder:
            cases[name] = record(code, case["text"], (width, height), Path(folder))
    made = provenance(code, "record_postprocess VENDOR_FOLDER", ["generate: one token", "tokenizer: one text"])
    head = {"provenance": made, "page_size": [width, height]}
    GOLDEN.write_text(one_line_each(head, {"cases": cases}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
