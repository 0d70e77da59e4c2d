"""Record what the vendor's real ``infer`` does on a few pages into ``golden/vendor/session-pillow-*.json``.

    python -m suites.vendor_live.record_session VENDOR_FOLDER

For each case: every seam's shape, norm and a fixed sample of values; the tokens, and the top two logits that each
was chosen from.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.vendor.code import VendorCode, build_vendor_model, load_vendor_code
from pytest_dsocr.vendor.observe import InferTokenizer, observe_infer
from suites.contract.digest import resampling
from suites.contract.pages import write_page
from suites.recordings import spaced
from suites.vendor_live.golden import one_line_a_case, path_of, provenance

CHECKPOINT = "synthetic:small"
NEW_TOKENS = 64
SAMPLES = 16
CASES = [
    ("portrait", "gundam", "markdown"),
    ("landscape", "gundam", "markdown"),
    ("tiny", "gundam", "free"),
    ("exif", "gundam", "free"),
    ("portrait", "tiny", "markdown"),
    ("portrait", "small", "free"),
    ("portrait", "base", "markdown"),
    ("portrait", "large", "markdown"),
]


def main(vendor_folder: str) -> None:
    logging.disable(logging.WARNING)
    code = load_vendor_code(Path(vendor_folder))
    checkpoint = resolve(CHECKPOINT)
    vendor = build_vendor_model(code, checkpoint.architecture)
    checkpoint.load_into(vendor)
    with tempfile.TemporaryDirectory() as folder:
        cases = [record(vendor, Path(folder), *case) for case in CASES]
    head = {"provenance": origin(code), "checkpoint": CHECKPOINT}
    path_of("session").write_text(one_line_a_case(head, {"cases": cases}), encoding="utf-8")


def record(vendor: Any, folder: Path, page: str, preset: str, prompt: str) -> dict[str, Any]:
    run = observe_infer(
        vendor,
        InferTokenizer(resolve(CHECKPOINT).tokenizer),
        write_page(page, folder),
        folder / "out",
        prompt=PROMPTS[prompt],
        preset=PRESETS[preset],
        max_new_tokens=NEW_TOKENS,
    )
    seams = {**run.seams, "prefill": run.step_logits[0]}
    return {
        "page": page,
        "preset": preset,
        "prompt": prompt,
        "prompt_tokens": run.generate_kwargs["input_ids"].shape[1],
        "seams": {name: summary(tensor) for name, tensor in seams.items()},
        "token_ids": run.token_ids,
        "top_two_logits": [[round(float(x), 6) for x in logits.topk(2).values] for logits in run.step_logits],
    }


def summary(tensor: Tensor) -> dict[str, Any]:
    flat = tensor.double().flatten()
    return {
        "shape": list(tensor.shape),
        "norm": float(flat.norm()),
        "mean": float(flat.mean()),
        "sample": [round(float(x), 7) for x in spaced(flat, SAMPLES)],
    }


def origin(code: VendorCode) -> dict[str, Any]:
    overrides = [
        f"generate: max_new_tokens {NEW_TOKENS} in place of 8192",
        "pixels: cast from bf16 to the weights' float32 in front of SAM",
    ]
    return {
        **provenance(code, "record_session VENDOR_FOLDER", overrides),
        "resampling": resampling(),
        "device": "cpu",
        "dtype": "float32",
        "attention": "eager",
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
