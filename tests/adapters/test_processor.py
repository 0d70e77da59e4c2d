"""``processor:``: inputs of a server's processor, with the engine behind."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.engine import engine_subject
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.asked import own_preset

HERE = f"processor:{__name__}"


@pytest.fixture(autouse=True)
def _noted_here() -> Iterator[None]:
    """Send notes about a part to a run of their own, not to the run of these tests."""
    with watching([]):
        yield


class Right:
    """Has the interface of vLLM's: rows without a batch, pixels in float32, no zeros where there are no crops."""

    def __init__(self, tokenizer: Any, image_size: int = 1, base_size: int = 1, normalize: bool = False) -> None:
        assert normalize, "what processor_config.json says"
        self.tokenizer, self.image_size, self.base_size = Tokenizer.wrap(tokenizer), image_size, base_size

    def __call__(self, *, prompt: str, images: list[Any], crop_mode: bool = True) -> dict[str, Any]:
        preset = own_preset("any", self.base_size, self.image_size, crop_mode)
        made = prepare_inputs(images, prompt, preset, self.tokenizer)
        has_crops = int(made.images_spatial_crop.prod()) > 1
        return {
            "input_ids": made.input_ids[0],
            "images_seq_mask": made.images_seq_mask[0],
            "images_spatial_crop": made.images_spatial_crop,
            "images_crop": made.images_crop.float()[None] if has_crops else made.images_crop[:0],
            "pixel_values": made.images_ori.float(),
        }


class AsSglang(Right):
    """Takes the text by another name, and cropping in another method."""

    def __call__(self, *, text: list[str], images: list[Any]) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("it takes no preset")

    def process_one(self, prompt: str, images: list[Any], cropping: bool = True) -> dict[str, Any]:
        return super().__call__(prompt=prompt, images=images, crop_mode=cropping)


class WithoutPixels(Right):
    """Returns ids alone."""

    def __call__(self, *, prompt: str, images: list[Any], crop_mode: bool = True) -> dict[str, Any]:
        return {"input_ids": super().__call__(prompt=prompt, images=images, crop_mode=crop_mode)["input_ids"]}


class OfPictures(Right):
    """Takes no text."""

    def __call__(self, images: list[Any]) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("nothing to read it with")


def loaded(name: str) -> Any:
    return load_subject(f"{HERE}:{name}", Setup())


@pytest.mark.parametrize(("name", "preset"), [("Right", "tiny"), ("AsSglang", "gundam")])
def test_a_right_processor_gives_the_engines_inputs_and_text(name: str, preset: str) -> None:
    subject, engine = loaded(name), engine_subject(Setup())
    asked: dict[str, Any] = {"prompt": f" {DEEPSEEK_OCR.prompts['markdown']}\n", "preset": DEEPSEEK_OCR.presets[preset]}
    page = shipped("dev-3")[0]
    actual, expected = subject.inputs(page, **asked), engine.inputs(page, **asked)
    for key, value in expected.items():
        assert actual[key].dtype == value.dtype, key
        assert torch.equal(actual[key], value), key
    if preset == "tiny":
        read = {**asked, "max_new_tokens": 24}
        assert subject.read(page, **read) == engine.read(page, **read)


def test_one_that_is_not_there_or_another_kind_is_reported() -> None:
    for spec, message in {
        "processor:nowhere": "'nowhere' names no subject; give engine, ",
        "processor:no_such_package:Any": "'no_such_package:Any': there is no module no_such_package, neither in ",
        f"{HERE}:Absent": f"{__name__} (",
    }.items():
        with pytest.raises(DsocrError, match=f"^{re.escape(message)}"):
            load_subject(spec, Setup())
    asked: dict[str, Any] = {"prompt": DEEPSEEK_OCR.prompts["markdown"], "preset": DEEPSEEK_OCR.presets["tiny"]}
    for name, message in {
        "WithoutPixels": "the processor gave input_ids, and no images_seq_mask; ",
        "OfPictures": "the processor takes images, and no prompt or text; name another",
    }.items():
        with pytest.raises(DsocrError, match=message):
            loaded(name).inputs(shipped("dev-3")[0], **asked)
