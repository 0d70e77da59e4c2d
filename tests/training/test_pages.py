"""Pages are made the same each time, say where everything is, and are read back with their truth."""

from collections import Counter

import numpy as np
import pytest
import tokenizers
from PIL import Image

from ci.training.rows import IGNORED, Block, Page, Rect, Word, collate, make_row, token_places, words_of
from ci.training.typeset import ANSWERS, typeset
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.presets import image_token_count
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.families import DEFAULT

BACKEND = tokenizers.Tokenizer.from_file(str(MINI_FOLDER / "tokenizer.json"))
WORDS = words_of(BACKEND)


def test_a_seed_gives_the_same_page_and_every_kind_of_block_comes() -> None:
    pages = [typeset(seed, WORDS) for seed in range(20)]
    again = typeset(7, WORDS)
    assert (again.image.tobytes(), again.blocks) == (pages[7].image.tobytes(), pages[7].blocks)
    labels = Counter(block.label for page in pages for block in page.blocks)
    assert {*labels} == {*ANSWERS, "text", "header", "footer", "page_number", "image", "table"}
    assert len({page.kind for page in pages}) == 4


@pytest.mark.parametrize("seed", range(4))
def test_the_truth_is_on_the_page(seed: int) -> None:
    page = typeset(seed, WORDS)
    markup = parse(page.answer(grounded=True))
    assert markup.problems == ()
    assert [span.label for span in markup.spans] == [block.label for block in page.blocks]
    shades = np.asarray(page.image.convert("L"))
    for block in page.blocks:
        for x1, y1, x2, y2 in (*block.rects, *(word.rect for word in block.words)):
            assert 0 <= x1 < x2 <= page.image.width
            assert 0 <= y1 < y2 <= page.image.height
            assert np.ptp(shades[round(y1) : round(y2), round(x1) : round(x2)]) > 40
        assert all(word.text in block.text for word in block.words)


@pytest.mark.parametrize(
    ("preset", "size", "middle", "token"),
    [
        ("gundam", (1280, 640), (700, 100), 1 * 21 + 10),  # 20 columns of crops; a newline ends each row
        ("gundam", (640, 640), (330, 10), 8),  # no crops: 16 columns of the whole view
        ("base", (512, 1024), (10, 500), 7 * 17 + 4),  # a quarter of the view beside it is empty
        ("tiny", (640, 640), (10, 10), None),
    ],
)
def test_a_place_on_the_page_is_a_token(
    preset: str, size: tuple[int, int], middle: tuple[int, int], token: int | None
) -> None:
    x, y = middle
    place = token_places(size, DEFAULT.presets[preset])
    assert (place and place(Rect(x - 5, y - 5, x + 5, y + 5))) == token
    assert place is None or place(Rect(*size, *size)) < image_token_count(DEFAULT.presets[preset], (2, 1))


def test_a_row_asks_for_the_answer_and_for_each_word() -> None:
    words = (_word("Harbor", 0), _word("zebra", 700), _word("12", 9))
    blocks = (
        Block("text", (Rect(0, 0, 90, 20),), "Harbor zebra 12", words),
        Block("image", (Rect(0, 50, 90, 90),), "", ()),
    )
    page = Page("note", 1, Image.new("RGB", (1280, 640), "white"), blocks)
    row, blind = make_row(page, BACKEND, "gundam"), make_row(page, BACKEND, "gundam", is_blind=True)
    assert [BACKEND.decode([word]) for word in row.word.tolist()[:2]] == ["Harbor", " zebra"]
    assert row.word_at.tolist() == [0, 11, 0]
    assert BACKEND.decode(row.answer[:-1], skip_special_tokens=False) == page.answer(grounded=True)
    assert blind.answer == row.answer[-1:]
    batch, prompt = collate([row, blind], pad=2), row.inputs.prompt_tokens
    assert batch.targets[0, prompt - 1 :].tolist() == [*row.answer, IGNORED]
    assert (batch.targets[:, : prompt - 1] == IGNORED).all()
    assert batch.targets[1, prompt - 1 :].tolist() == [row.answer[-1], *[IGNORED] * len(row.answer)]
    assert batch.mask.sum(dim=1).tolist() == [row.inputs.image_tokens] * 2
    assert (batch.ids[1, prompt + 1 :] == 2).all()


def _word(text: str, x: int) -> Word:
    return Word(text, Rect(x, 0, x + 10, 20))
