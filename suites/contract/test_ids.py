"""Token ids and image mask: their order on every page, the number of image tokens, and the ids of prompts."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pytest_dsocr.compare.verdict import as_expected, equal
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.describe.ids import Vocabulary
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts, compare_image_tokens
from .hints import hinted, of_ids, of_prompt

pytestmark = pytest.mark.dsocr_level("L1")

CASES = [
    *(("square", preset) for preset in ("tiny", "small", "base", "large", "gundam")),
    *((page, "gundam") for page in ("tiny", "641_wide", "screen", "halves")),
]


@pytest.mark.parametrize(("page", "preset"), CASES, ids=map("-".join, CASES))
def test_one_bos_then_the_image_then_the_text(
    page: str, preset: str, asked: Asked, drawn: Drawn, vocabulary: Vocabulary, dsocr_check: Check
) -> None:
    tokenizer = vocabulary.tokenizer
    inputs, special = asked(drawn(page), preset), tokenizer.special
    ids, prompt = inputs.prompt_ids, asked.family.prompts["markdown"]
    images = ids.count(special.image)
    places = images or sum(length for value, length in inputs.images_seq_mask if value)
    text = [one for one in ids if one not in (special.bos, special.image)]
    expected = tokenizer.encode(prompt.removeprefix("<image>"))
    first = ids.index(special.image) if images else None
    of_text = as_expected("input_ids/text", text, expected, "the prompt's text in the checkpoint's vocabulary")
    dsocr_check(
        [
            as_expected("input_ids/first", ids[0], special.bos, "the id of BOS"),
            as_expected("input_ids/BOS", ids.count(special.bos), 1, "the number of BOS tokens"),
            as_expected("input_ids/EOS", ids.count(special.eos), 0, "because only the model outputs EOS"),
            as_expected("input_ids/image", first, 1, "the position of the first image id, right after BOS"),
            hinted(of_text, lambda: _of_text(ids, text, expected, vocabulary)),
            as_expected("input_ids/length", len(ids), 1 + places + len(expected), "BOS, image and text together"),
        ]
    )


@pytest.mark.parametrize(("page", "preset"), CASES, ids=map("-".join, CASES))
def test_the_mask_is_true_on_exactly_the_image_ids(
    page: str, preset: str, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    inputs = asked(drawn(page), preset)
    mask = [bool(value) for value, length in inputs.images_seq_mask for _ in range(length)]
    wanted = [one == tokenizer.special.image for one in inputs.prompt_ids]
    apart = [k for k, (one, other) in enumerate(zip(mask, wanted, strict=False)) if one != other]
    runs = sum(1 for value, _ in inputs.images_seq_mask if value)
    dsocr_check(
        [
            as_expected("images_seq_mask/length", len(mask), len(wanted), "the number of ids"),
            as_expected("images_seq_mask/apart", apart, [], "positions where mask and image ids disagree"),
            as_expected("images_seq_mask/runs", runs, 1, "run of True values for one image"),
        ]
    )


@pytest.mark.parametrize(("page", "preset"), CASES, ids=map("-".join, CASES))
def test_shapes_and_dtypes(
    page: str, preset: str, asked: Asked, drawn: Drawn, facts: Facts, dsocr_check: Check
) -> None:
    actual, expected = asked(drawn(page), preset), facts.prepared(page, preset)
    crops = "dtype and shape; a page without crops has zeros in float32"
    own, known = actual.shapes, expected.shapes
    dsocr_check(
        [
            equal("dtypes", actual.dtypes, expected.dtypes, "dtypes of ids, mask and grid"),
            equal("images_ori", own["images_ori"], known["images_ori"], "dtype and shape"),
            equal("images_crop", own["images_crop"], known["images_crop"], crops),
        ]
    )


RECORDED = [
    *(("square", preset) for preset in ("tiny", "small", "base", "large")),
    *((page, "gundam") for page in ("tiny", "landscape", "square", "portrait", "palette", "screen")),
]


@pytest.mark.parametrize(("page", "preset"), RECORDED, ids=map("-".join, RECORDED))
def test_image_tokens(
    page: str, preset: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    inputs, expected = asked(drawn(page), preset), facts.prepared(page, preset).image_tokens
    compared = compare_image_tokens(inputs, tokenizer.special.image, expected, f"image tokens in {preset}")
    dsocr_check(map(facts.with_origin, compared))


PROMPTS = (
    *("markdown", "ocr", "free", "figure", "describe", "locate"),
    *("space_after", "space_around", "text_before", "image_last", "image_alone", "not_latin"),
)

UNUSUAL = {
    "runs of blanks": "\nRead  all   of this.",
    "runs of line ends": "\n\nFirst.\n\n\nSecond.",
    "capitals and marks": "\nOCR: “ﬁne”, naïve & R&amp;D?!",
    "special tokens": "\nLocate <|ref|>a word<|/ref|> in the image.",
}
"""Texts that a server might normalise."""


@pytest.mark.parametrize("name", PROMPTS)
def test_ids_and_mask(
    name: str, facts: Facts, asked: Asked, drawn: Drawn, vocabulary: Vocabulary, dsocr_check: Check
) -> None:
    """Compare with the recorded ids, or in another vocabulary with the ids of the same pieces of text."""
    import torch

    from pytest_dsocr.compare.inputs import compare_inputs
    from pytest_dsocr.records.reference_result import runs

    fact, tokenizer = facts.prompt(name), vocabulary.tokenizer
    ids = fact.input_ids if facts.is_vocabulary_of(tokenizer) else fact.ids_in(tokenizer)
    row = torch.tensor([ids])
    actual = asked(drawn("square"), "gundam", fact.text)
    expected = replace(actual, input_ids=runs(row), images_seq_mask=runs(row == tokenizer.special.image))
    comparisons = [
        hinted(facts.with_origin(one), lambda: of_prompt(actual.prompt_ids, ids, fact.text, vocabulary, facts.family))
        for one in compare_inputs(actual, expected)
    ]
    dsocr_check(comparisons, "input_ids", "images_seq_mask")


@pytest.mark.parametrize("kind", UNUSUAL)
def test_the_text_is_not_tidied(
    kind: str, asked: Asked, drawn: Drawn, vocabulary: Vocabulary, dsocr_check: Check
) -> None:
    """Compare the ids after the image with those of the unchanged text in the checkpoint's vocabulary."""
    tokenizer = vocabulary.tokenizer
    actual = asked(drawn("tiny"), "tiny", f"<image>{UNUSUAL[kind]}").prompt_ids
    text = [one for one in actual[1:] if one != tokenizer.special.image]
    why = f"the ids of the unchanged prompt: {kind} are kept, and nothing is escaped"
    ids = tokenizer.encode(UNUSUAL[kind])
    found = as_expected("input_ids/text", text, ids, why)
    dsocr_check([hinted(found, lambda: _of_text(actual, text, ids, vocabulary))])


def _of_text(prompt: list[int], text: list[int], expected: list[int], vocabulary: Vocabulary) -> Iterator[str]:
    """Yield how the text's ids differ, or the whole prompt's if it has no image id that ends the image."""
    special = vocabulary.tokenizer.special
    if special.image in prompt:
        return of_ids(text, expected, vocabulary)
    image = [special.image] * (len(prompt) - 1 - len(expected))
    return of_ids(prompt, [special.bos, *image, *expected], vocabulary)
