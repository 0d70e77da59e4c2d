"""Record the arguments that the vendor's ``infer`` passes to ``generate``, in ``inputs-*.json`` of its model.

    python -m tests.vendor_live.record_inputs VENDOR_FOLDER TOKENIZER_FOLDER

Pages are recorded with every preset, two pages also with custom presets, and with the synthetic tokenizer, which CI has
too. Prompts are recorded with the real vocabulary; only the ids of these texts are kept. Pillow 13.0 changed resizing,
so there is a recording for each way. The recordings themselves name the cases to record.
"""

import hashlib
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from PIL import Image
from transformers import AutoTokenizer

from pytest_dsocr.contract import GRID
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.reference.drift import one_line_each
from pytest_dsocr.reference.goldens import facts_of
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from pytest_dsocr.reference.vendor_code.observe import inputs_of
from pytest_dsocr.reference.vendor_code.runtime import synthetic_tokenizer
from suites.contract.asked import OWN_PRESETS, recorded_presets
from suites.contract.pages import write_page
from tests.contract.recorded import digest
from tests.recordings import FOLDER, recording_of
from tests.vendor_live.golden import provenance, quietly_on_cpu, without_weights

PROMPT_PAGE = "square"  # 2 x 2 crops


def handed(
    code: VendorCode, page: Path, preset: Preset, prompt: str, tokenizer: Any, *, eval_mode: bool = True
) -> dict[str, Any]:
    """Return the arguments that ``infer`` passes to a ``generate`` without a model."""
    model = without_weights(code)
    with quietly_on_cpu():
        model.infer(
            tokenizer,
            prompt=prompt,
            image_file=str(page),
            output_path=str(page.parent / "out"),
            base_size=preset.base_size,
            image_size=preset.image_size,
            crop_mode=preset.crop,
            eval_mode=eval_mode,
        )
    seen: dict[str, Any] = model.seen
    return seen


def prepared(code: VendorCode, case: dict[str, Any], preset: Preset, page: Path, tokenizer: Any) -> dict[str, Any]:
    """Record a page in a preset; what the vendor's gate sums up only where it is the same on any machine."""
    inputs = inputs_of(handed(code, page, preset, code.family.prompts["markdown"], tokenizer))
    gate = {"gate_sum": float(torch.sum(inputs["images_ori"]))} if "gate_sum" in case else {}
    return {"page": case["page"], "preset": preset.name, **digest(inputs), **gate}


def prompted(code: VendorCode, name: str, text: str, page: Path, tokenizer: Any) -> dict[str, Any]:
    """Record a prompt, with the texts that ``infer`` has the real tokenizer encode."""
    encoded: dict[str, list[int]] = {}

    def encode(part: str, *, add_special_tokens: bool) -> list[int]:
        encoded[part] = tokenizer.encode(part, add_special_tokens=add_special_tokens)
        return encoded[part]

    noting = mock.Mock(eos_token_id=tokenizer.eos_token_id, encode=encode, decode=tokenizer.decode)
    family = code.family
    row = digest(inputs_of(handed(code, page, family.presets[family.default_preset], text, noting)))
    ids = {"input_ids": row["input_ids"], "images_seq_mask": row["images_seq_mask"]}
    return {"name": name, "text": text, "encoded": encoded, **ids}


def decoding(code: VendorCode, page: Path, tokenizer: Any, *, eval_mode: bool) -> dict[str, Any]:
    """Record all but the inputs; a streamer, which is an object, as whether there is one."""
    given = handed(code, page, code.family.quickest, code.family.a_prompt, tokenizer, eval_mode=eval_mode)
    others = {name: value for name, value in given.items() if name not in (*inputs_of(given), "images")}
    return {**others, "streamer": others.get("streamer") is not None}


def grid(code: VendorCode, width: int, height: int, tokenizer: Any, page: Path) -> list[int]:
    Image.new("1", (width, height)).save(page)
    preset = code.family.presets[code.family.default_preset]
    [columns_and_rows] = inputs_of(handed(code, page, preset, "<image>", tokenizer))[GRID].tolist()
    return [width, height, *columns_and_rows]


def main(vendor_folder: str, tokenizer_folder: str) -> None:
    code = load_vendor_code(Path(vendor_folder))
    before = recording_of("inputs", code.family)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    presets = {one.name: one for one in (*recorded_presets(code.family).values(), *OWN_PRESETS)}
    made = {
        **provenance(code, "record_inputs VENDOR_FOLDER TOKENIZER_FOLDER", ["generate: notes its arguments"]),
        "vocabulary": before["provenance"]["vocabulary"],
        "vocabulary_sha256": hashlib.sha256(Path(tokenizer_folder, "tokenizer.json").read_bytes()).hexdigest(),
        "resampling": resampling(),
        "presets": before["provenance"]["presets"],
    }
    with tempfile.TemporaryDirectory() as scratch:
        pages = {name: write_page(name, Path(scratch)) for name in {case["page"] for case in before["prepared"]}}
        page, synthetic = pages[PROMPT_PAGE], synthetic_tokenizer(code.family.vocab_size)
        names = {"infer": False, "infer_eval_mode": True}
        ways = {name: decoding(code, page, tokenizer, eval_mode=eval_mode) for name, eval_mode in names.items()}
        sections: dict[str, list[Any]] = {
            "prepared": [
                prepared(code, case, presets[case["preset"]], pages[case["page"]], synthetic)
                for case in before["prepared"]
            ],
            "prompts": [prompted(code, case["name"], case["text"], page, tokenizer) for case in before["prompts"]],
            "grids": [
                grid(code, width, height, synthetic, Path(scratch, "sized.png"))
                for width, height, *_ in before["grids"]
            ],
        }
    path = facts_of(FOLDER, code.family) / f"inputs-pillow-{version('pillow').split('.')[0]}.json"
    path.write_text(one_line_each({"provenance": made, "generate": ways}, sections), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
