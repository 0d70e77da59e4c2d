"""A wrong fact of the contract: the suite names the mistake of inputs that leads to it."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_dsocr.describe.ids import Vocabulary
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.catalogue.grids import GRIDS, nearest
from pytest_dsocr.explain.catalogue.images import laid_over, opened
from pytest_dsocr.explain.catalogue.pixels import CHANGED, plant_recipe
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.planted import in_contract
from pytest_dsocr.explain.rows import Row
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.subjects.engine import EngineSubject
from suites.contract.asked import Asked, Drawn
from suites.contract.hints import of_count, of_grid, of_prompt
from suites.contract.recipes import Recipes
from suites.contract.test_crop_grid import ASKED_PX

TOKENIZER = resolve(MINI).tokenizer
VOCABULARY = Vocabulary(TOKENIZER, 2017)
PROMPT = " <image>\n<|grounding|>Convert the document to markdown. "


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"swapped": True}, "columns and rows of the grid exchanged"),
        ({"both": True}, "only pages cut both of whose sides are above 640 px"),
        ({"most": 6, "tie": "first"}, "at most 6 crops, and the first of grids that are equally near"),
        ({"least": 3}, None),
    ],
)
def test_grids_are_laid_to_the_one_rule_that_gives_them_all(how: dict[str, Any], words: str | None) -> None:
    """At most six is as good as at most seven on a page of two crops: the sizes of the whole engine tell."""
    hints = [*of_grid({size: nearest(*size, TILING, **how) for size in ASKED_PX}, DEEPSEEK_OCR.presets["gundam"])]
    none = f"what makes it, as none of {len(GRIDS)} known mistakes gives the same"
    assert hints == [f"whether the cause is {words}" if words else none]


@pytest.mark.parametrize("name", ["no-bos", "special-as-text", "text-first", "not-stripped"])
def test_a_prompt_is_laid_to_what_gives_its_ids(name: str) -> None:
    one = mistakes(DEEPSEEK_OCR)[f"prompt.{name}"]
    page = Image.new("RGB", (900, 900))
    with in_contract(one):
        ids = DEEPSEEK_OCR.prepare([page], PROMPT, "gundam", TOKENIZER).input_ids[0].tolist()
    right = DEEPSEEK_OCR.prepare([page], PROMPT, "gundam", TOKENIZER).input_ids[0].tolist()
    [hint] = of_prompt(ids, right, PROMPT, VOCABULARY, DEEPSEEK_OCR)
    assert one.words in hint
    behind = [*right[:-1], TOKENIZER.special.bos, right[-1]]
    [hint] = of_prompt(behind, right, PROMPT, VOCABULARY, DEEPSEEK_OCR)
    assert hint.startswith(f"one token 0 (BOS) inserted at {len(right) - 1:,}, as none of ")


BILINEAR, BLACK, FLOAT32 = (CHANGED[name] for name in ("resize-pillow-bilinear", "bars-black", "levels-float32"))
TWICE = "", {"resize": lambda page, size: page.resize((page.width + 3, page.height)).resize(size)}
ON_A_COLOUR = "", {"opened": partial(opened, change=partial(laid_over, colour=(200, 90, 9)))}
TILING = DEEPSEEK_OCR.tiling
NO_ORIENTATION, OWN_PAGE = CHANGED["opened-no-orientation"], "what the page is there for"
Rows = Sequence[tuple[str, Mapping[str, Any]] | Row]


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("planted", "seen", "named"),
    [
        ([BILINEAR, BLACK, FLOAT32], ("images_ori", "exif", "base"), [BLACK, BILINEAR, FLOAT32]),
        ([BILINEAR, BLACK, FLOAT32], ("images_crop", "exif", "gundam"), [BILINEAR, FLOAT32]),
        ([TWICE, BLACK], ("images_ori", "landscape", "base"), [BLACK]),
        ([NO_ORIENTATION], ("images_ori", "exif", "tiny"), [NO_ORIENTATION]),
        ([ON_A_COLOUR], ("images_ori", "alpha", "tiny"), [(OWN_PAGE,)]),
    ],
)
def test_pixels_are_laid_to_what_makes_them_and_to_nothing_that_is_right(
    planted: Rows, seen: tuple[str, str, str], named: Rows, tiny: Any, tmp_path: Path
) -> None:
    """Three mistakes of one port, one beside something unknown, and what a plain page refutes."""
    what, page, preset = seen
    drawn, changes = Drawn(tmp_path), {name: value for row in planted for name, value in row[1].items()}
    with in_contract(Mistake("pixels", "", "", "front", partial(plant_recipe, how=changes))):
        recipes = Recipes(Asked(EngineSubject(tiny), DEEPSEEK_OCR), drawn)
        hints = [*recipes.hints(what, drawn(page), DEEPSEEK_OCR.presets[preset], OWN_PAGE)]
    said = ", and ".join(words for words, *_ in named)
    assert hints == [said if said == OWN_PAGE else f"whether the cause is {said}"] * bool(named)


@pytest.mark.dsocr_slow
def test_what_one_page_refutes_is_not_named_for_the_next(tiny: Any, tmp_path: Path) -> None:
    """A page without an orientation leaves two rows; one with it leaves one, which holds from then on."""
    how = CHANGED["opened-jpeg"].how
    with in_contract(Mistake("pixels", "", "", "front", partial(plant_recipe, how=how))):
        drawn = Drawn(tmp_path)
        recipes = Recipes(Asked(EngineSubject(tiny), DEEPSEEK_OCR), drawn)

        def alternatives(page: str) -> int:
            [hint] = recipes.hints("images_ori", drawn(page), DEEPSEEK_OCR.presets["tiny"], "")
            return hint.count(" or ") + 1

        before, turned, after = alternatives("landscape"), alternatives("exif"), alternatives("landscape")
    assert before > turned == after


def test_a_number_of_image_tokens_is_laid_to_what_gives_it(tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    Image.new("RGB", (900, 1300)).save(page)
    one = mistakes(DEEPSEEK_OCR)["prompt.counts-no-separator"]
    with in_contract(one):
        ids = DEEPSEEK_OCR.prepare(page, "markdown", "gundam", TOKENIZER).input_ids[0].tolist()
    [hint] = of_count(page, ids.count(TOKENIZER.special.image), TOKENIZER, DEEPSEEK_OCR)
    assert one.words in hint
