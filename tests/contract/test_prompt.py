"""Prompts by name and by text; their ids are compared with the vendor's in ``test_inputs.py``."""

from __future__ import annotations

import pytest

from pytest_dsocr.contract.prompt import locate, render, split_at_images
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from tests.contract.recorded_inputs import RECORDED

MODEL_CARD = {
    "markdown": "<image>\n<|grounding|>Convert the document to markdown.",
    "ocr": "<image>\n<|grounding|>OCR this image.",
    "free": "<image>\nFree OCR.",
    "figure": "<image>\nParse the figure.",
    "describe": "<image>\nDescribe this image in detail.",
}


def test_prompts_are_the_model_cards() -> None:
    assert DEFAULT.prompts == MODEL_CARD
    assert locate("the title") == "<image>\nLocate <|ref|>the title<|/ref|> in the image."


def test_every_named_prompt_was_recorded() -> None:
    recorded = {case["name"]: case["text"] for case in RECORDED["prompts"]}
    assert {**DEFAULT.prompts, "locate": locate("the title")}.items() <= recorded.items()


@pytest.mark.parametrize(
    ("prompt", "rendered"),
    [
        ("free", "<image>\nFree OCR."),
        ("<image>\nFree OCR. ", "<image>\nFree OCR."),
        ("\n <image>\nFree OCR.\n\n", "<image>\nFree OCR."),
        ("<image> two  spaces\n\nkept", "<image> two  spaces\n\nkept"),
        ("Free", "Free"),  # names are exact, so that any other text can be a prompt
    ],
)
def test_render_strips_and_does_nothing_else(prompt: str, rendered: str) -> None:
    assert render(prompt) == rendered


@pytest.mark.parametrize(
    ("prompt", "images", "pieces"),
    [
        ("free", 1, ["", "\nFree OCR."]),
        ("A <image> b <image> c", 2, ["A ", " b ", " c"]),
        ("<image><image>", 2, ["", "", ""]),
        ("No image here.", 0, ["No image here."]),
    ],
)
def test_pieces_around_the_images(prompt: str, images: int, pieces: list[str]) -> None:
    assert split_at_images(prompt, images) == pieces


@pytest.mark.parametrize(
    ("prompt", "images", "message"),
    [
        ("", 1, "the prompt is empty.*markdown, ocr, free, figure, describe"),
        (" \n ", 0, "the prompt is empty"),
        ("Free OCR.", 1, "'Free OCR.' has no <image>"),
        ("markdwon", 1, "'markdwon' has no <image>.*names markdown"),
        ("<image> <image> Compare.", 1, "has 2 <image> placeholders and there are 1 images"),
        ("<image> Compare.", 3, "has 1 <image> placeholders and there are 3 images"),
        ("<image> Describe.", 0, "has 1 <image> placeholders and there are 0 images"),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused(prompt: str, images: int, message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        split_at_images(prompt, images)


@pytest.mark.parametrize("phrase", ["", "  "])
def test_nothing_cannot_be_located(phrase: str) -> None:
    with pytest.raises(DsocrError, match="no phrase"):
        locate(phrase)


def test_a_phrase_with_an_image_in_it_is_noticed() -> None:
    with pytest.raises(DsocrError, match="2 <image> placeholders and there are 1"):
        split_at_images(locate("<image>"), 1)
