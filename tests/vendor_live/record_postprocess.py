"""Record how the vendor's ``infer`` processes the outputs in ``postprocess.json`` of its model.

Run ``python -m tests.vendor_live.record_postprocess VENDOR_FOLDER`` in the vendor's environment, with the folder of
either model. No weights are needed: ``generate`` returns one token, which a tokenizer decodes to the wanted text. All
code after the decoding is the vendor's.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from PIL import Image, ImageDraw

from pytest_dsocr.reference.drift import one_line_each
from pytest_dsocr.reference.goldens import facts_of
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from tests.recordings import FOLDER
from tests.vendor_live.golden import provenance, quietly_on_cpu, without_weights

OUTLINE_WIDTHS_PX = (2, 4)  # the vendor draws its fills and label backgrounds 1 px wide


def record(
    code: VendorCode, text: str, size_px: Sequence[int], folder: Path, pages: Sequence[Sequence[int]] = ()
) -> dict[str, Any]:
    """Run the vendor's ``infer`` on one output and give what it read, drew and wrote, and its error if it raised.

    With ``pages``, sizes in pixels, it is ``infer_multi`` on these.
    """
    out = folder / "out"
    files = [str(folder / f"page-{number}.png") for number in range(max(1, len(pages)))]
    for path, size in zip(files, pages or [size_px], strict=True):
        Image.new("RGB", list(size), "white").save(path)
    tokenizer = mock.Mock(eos_token_id=1, encode=lambda *_, **__: [], decode=lambda *_, **__: text)
    model, error = without_weights(code), None
    with quietly_on_cpu(), _listening(code.modeling) as heard:
        try:
            if pages:
                model.infer_multi(tokenizer, "<image>", files, str(out), 512, save_results=True)
            else:
                model.infer(tokenizer, "<image>", files[0], str(out), 512, 512, False, save_results=True)
        except Exception as raised:
            error = type(raised).__name__
    [result] = out.glob("result.m*")
    return {
        "text": text,
        **({"pages": pages} if pages else {}),
        "error": error,
        **heard,
        "mmd": result.read_bytes().decode(),
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
    code = load_vendor_code(Path(vendor_folder))
    path = facts_of(FOLDER, code.family) / "postprocess.json"
    before = json.loads(path.read_text(encoding="utf-8"))
    cases = {}
    for name, case in before["cases"].items():
        with tempfile.TemporaryDirectory() as folder:
            cases[name] = record(code, case["text"], before["page_size"], Path(folder), case.get("pages", ()))
    made = provenance(code, "record_postprocess VENDOR_FOLDER", ["generate: one token", "tokenizer: one text"])
    head = {"provenance": made, "page_size": before["page_size"]}
    path.write_text(one_line_each(head, {"cases": cases}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
