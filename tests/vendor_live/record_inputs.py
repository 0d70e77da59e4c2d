"""Record what the vendor's real ``infer`` hands to ``generate`` into ``golden/vendor/inputs-*.json``.

    python -m tests.vendor_live.record_inputs VENDOR_FOLDER TOKENIZER_FOLDER

The pages go through every preset, two of them through presets of one's own, with the synthetic tokenizer, which CI has
as well. The prompts go with the real vocabulary, of which only the ids of these texts are kept. There is one recording
for each way in which Pillow has resized pages: 13.0 changed it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import locate
from pytest_dsocr.engine.places import VENDOR_VOCAB_SIZE
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.reference.vendor_code.code import VendorCode, cuda_stays, load_vendor_code
from pytest_dsocr.reference.vendor_code.observe import inputs_of
from pytest_dsocr.reference.vendor_code.runtime import synthetic_tokenizer
from suites.contract.asked import OWN_PAGES, OWN_PRESETS
from suites.contract.pages import PAGES, ZERO_SUM_PAGES, write_page
from tests.contract.recorded import digest
from tests.vendor_live.golden import one_line_a_case, path_of, provenance

PROMPT_PAGE = "square"  # 2 x 2 crops
ODD_PROMPTS = {
    "space_after": "<image>\nFree OCR. ",
    "space_around": " \n<image>\nFree OCR.\n\n",
    "text_before": "Read this page: <image>\nFree OCR.",
    "image_last": "Convert the document to markdown. <image>",
    "image_alone": "<image>",
    "not_latin": "<image>\n\N{CYRILLIC CAPITAL LETTER EN} 数式を読む 😀",
}
SIDES_PX = (320, 600, 640, 641, 700, 905, 1000, 1200, 1358, 1754, 2480, 5000)
TIED_SIZES = [  # exactly between two grids' ratios, or on one that two grids have, with few pixels and with many
    *[(1200, 960), (1250, 1000), (960, 1200), (1000, 1250), (1357, 1357), (1358, 1358), (1500, 1500)],
    *[(1810, 905), (1812, 906), (905, 1810), (906, 1812), (1400, 800), (1540, 880), (1225, 490), (1300, 520)],
    *[(1920, 1080), (1240, 1754), (641, 1), (1, 641), (20000, 700), (700, 20000), (4500, 1000), (3500, 1000)],
]


class Stub:
    """Stands in the place of ``generate``: notes what it is given, and answers with EOS."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def __call__(self, input_ids: Tensor, **given: Any) -> Tensor:
        self.given = {"input_ids": input_ids, **given}
        return torch.cat([input_ids, torch.tensor([[given["eos_token_id"]]])], dim=1)

    def inputs(self) -> dict[str, Tensor]:
        return inputs_of(self.given)

    def arguments(self) -> dict[str, Any]:
        """All but the inputs; a streamer, which is an object, as whether there is one."""
        others = {name: value for name, value in self.given.items() if name not in (*self.inputs(), "images")}
        return {**others, "streamer": others.get("streamer") is not None}


class Recorder:
    """The vendor's ``infer`` without a model behind it."""

    def __init__(self, code: VendorCode, folder: Path) -> None:
        self.folder = folder
        self.generate = Stub()
        kind = code.modeling.DeepseekOCRForCausalLM
        self.model = kind.__new__(kind)
        self.model.__dict__["generate"] = self.generate

    def infer(self, page: str, preset: Preset, prompt: str, tokenizer: Any, **options: Any) -> Stub:
        with _on_cpu(), contextlib.redirect_stdout(io.StringIO()):
            self.model.infer(
                tokenizer,
                prompt=prompt,
                image_file=str(self.folder / page),
                output_path=str(self.folder / "out"),
                base_size=preset.base_size,
                image_size=preset.image_size,
                crop_mode=preset.crop,
                **options,
            )
        return self.generate


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    with cuda_stays(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def prepared(recorder: Recorder, files: dict[str, str]) -> list[dict[str, Any]]:
    tokenizer = synthetic_tokenizer(VENDOR_VOCAB_SIZE)
    cases = []
    for page, file in files.items():
        for preset in (*DEFAULT.presets.values(), *(OWN_PRESETS if page in OWN_PAGES else ())):
            given = recorder.infer(file, preset, DEFAULT.prompts["markdown"], tokenizer, eval_mode=True).inputs()
            cases.append({"page": page, "preset": preset.name, **digest(given), **_gate(page, given)})
    return cases


def _gate(page: str, given: dict[str, Tensor]) -> dict[str, Any]:
    """What the vendor's gate sums up, where it is a sum of ones and so the same on any machine."""
    page_view = given["images_ori"]
    exact = page in ZERO_SUM_PAGES and bool((page_view.abs() == 1).all())
    return {"gate_sum": float(torch.sum(page_view))} if exact else {}


def prompts(recorder: Recorder, file: str, tokenizer: Any) -> list[dict[str, Any]]:
    texts = {**DEFAULT.prompts, "locate": locate("the title"), **ODD_PROMPTS}
    cases = []
    for name, text in texts.items():
        encoded: dict[str, list[int]] = {}
        given = recorder.infer(
            file, DEFAULT.presets["gundam"], text, _Noting(tokenizer, encoded), eval_mode=True
        ).inputs()
        row = digest(given)
        ids = {"input_ids": row["input_ids"], "images_seq_mask": row["images_seq_mask"]}
        cases.append({"name": name, "text": text, "encoded": encoded, **ids})
    return cases


class _Noting:
    """The real tokenizer; writes down the texts that ``infer`` has it encode."""

    def __init__(self, tokenizer: Any, encoded: dict[str, list[int]]) -> None:
        self._tokenizer, self._encoded = tokenizer, encoded
        self.eos_token_id = tokenizer.eos_token_id

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        self._encoded[text] = ids
        return ids

    def decode(self, ids: Any) -> str:
        text: str = self._tokenizer.decode(ids)
        return text


def decoding(recorder: Recorder, file: str, tokenizer: Any) -> dict[str, Any]:
    names = {"infer": False, "infer_eval_mode": True}
    return {
        name: recorder.infer(
            file, DEFAULT.presets["tiny"], DEFAULT.prompts["free"], tokenizer, eval_mode=eval_mode
        ).arguments()
        for name, eval_mode in names.items()
    }


def grids(code: VendorCode) -> list[list[int]]:
    crossed = [(width, height) for width in SIDES_PX for height in SIDES_PX if max(width, height) > 640]
    table = []
    for width, height in sorted({*crossed, *TIED_SIZES}):
        _, grid = code.modeling.dynamic_preprocess(Image.new("L", (width, height)))
        table.append([width, height, *grid])
    return table


def origin(code: VendorCode, vocabulary: Path) -> dict[str, Any]:
    return {
        **provenance(code, "record_inputs VENDOR_FOLDER TOKENIZER_FOLDER", ["generate: notes its arguments"]),
        "vocabulary": "that of DeepSeek-V3 with DeepSeek-OCR's own added tokens",
        "vocabulary_sha256": hashlib.sha256(vocabulary.read_bytes()).hexdigest(),
        "resampling": resampling(),
        "presets": [asdict(preset) for preset in (*DEFAULT.presets.values(), *OWN_PRESETS)],
    }


def main(vendor_folder: str, tokenizer_folder: str) -> None:
    code = load_vendor_code(Path(vendor_folder))
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    with tempfile.TemporaryDirectory() as folder:
        files = {page: write_page(page, Path(folder)).name for page in (*PAGES, *ZERO_SUM_PAGES)}
        recorder, page = Recorder(code, Path(folder)), files[PROMPT_PAGE]
        head = {
            "provenance": origin(code, Path(tokenizer_folder) / "tokenizer.json"),
            "generate": decoding(recorder, page, tokenizer),
        }
        sections: dict[str, list[Any]] = {
            "prepared": prepared(recorder, files),
            "prompts": prompts(recorder, page, tokenizer),
            "grids": grids(code),
        }
    path_of("inputs").write_text(one_line_a_case(head, sections), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
