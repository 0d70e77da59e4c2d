"""A perfect answer is perfect, and each damage moves the counts that it should, by as much as it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.training.lexicon import LABELS, WORDS
from ci.training.quality import TITLES, PageQuality, is_degenerate, measure
from pytest_dsocr.contract.markup import DET, DET_END, REF, REF_END, Box, parse
from tests.contract.fuzzing import fuzz


@dataclass(frozen=True)
class Block:
    label: str
    boxes: tuple[Box, ...]
    text: str

    def written(self) -> str:
        coordinates = [list(map(int, box)) for box in self.boxes]
        return f"{REF}{self.label}{REF_END}{DET}{coordinates}{DET_END}\n{self.text}"


Blocks = tuple[Block, ...]
Damage = Callable[[Blocks, int], tuple[Blocks, dict[str, float]]]


def written(blocks: Blocks) -> str:
    return "\n\n".join(block.written() for block in blocks)


def quality(truth: Blocks, answer: Blocks, *, ended: bool = True) -> PageQuality:
    return measure(parse(written(truth)), parse(written(answer)), ended=ended)


def change(truth: Blocks, answer: Blocks) -> dict[str, float]:
    """What an answer moves from where the perfect one has it."""
    perfect, found = (asdict(quality(truth, blocks)) for blocks in (truth, answer))
    return {name: found[name] - value for name, value in perfect.items() if found[name] != value}


TITLE = Block("title", (Box(100, 20, 500, 80),), "# Harbor Apple")
HEAD = Block("sub_title", (Box(100, 120, 500, 160),), "## Zebra")
TEXT = Block("text", (Box(100, 200, 450, 400), Box(500, 200, 900, 300)), "The wagon of the lemon. Yellow 17.")
IMAGE = Block("image", (Box(100, 450, 500, 700),), "")
CAPTION = Block("image_caption", (Box(100, 720, 500, 760),), "<center>Figure 3: Maple</center>")
PAGE: Blocks = (TITLE, HEAD, TEXT, IMAGE, CAPTION)
EMPTY_PLACE = (Box(600, 800, 900, 900),)


def test_a_perfect_answer() -> None:
    assert quality(PAGE, PAGE) == PageQuality(
        true_boxes=6,
        answered_boxes=6,
        matched_boxes=6,
        iou_sum=6.0,
        good_boxes=6,
        labelled_boxes=6,
        title_characters=len(TITLE.text + HEAD.text),
        title_errors=0,
        text_characters=len(TEXT.text + CAPTION.text),
        text_errors=0,
        moved_blocks=0,
        ended=True,
        degenerate=False,
    )


BOX: dict[str, float] = {"answered_boxes": 1}
LOST: dict[str, float] = {
    "answered_boxes": -1,
    "matched_boxes": -1,
    "iou_sum": -1.0,
    "good_boxes": -1,
    "labelled_boxes": -1,
}
DAMAGES: dict[str, tuple[Blocks, dict[str, float]]] = {
    "no image": ((TITLE, HEAD, TEXT, CAPTION), LOST),
    "no title": (PAGE[1:], {**LOST, "title_errors": 14}),
    "no caption": (PAGE[:-1], {**LOST, "text_errors": 32}),
    "one of two boxes": ((TITLE, HEAD, replace(TEXT, boxes=TEXT.boxes[:1]), IMAGE, CAPTION), LOST),
    "a box too many": ((*PAGE, Block("image", EMPTY_PLACE, "")), BOX),
    "a text too many": ((*PAGE, Block("text", EMPTY_PLACE, "Soup.")), {**BOX, "text_errors": 5}),
    "a title too many": ((*PAGE, Block("sub_title", EMPTY_PLACE, "## Soup")), {**BOX, "title_errors": 7}),
    "another label": ((TITLE, HEAD, replace(TEXT, label="table"), IMAGE, CAPTION), {"labelled_boxes": -2}),
    "a title called text": ((replace(TITLE, label="text"), *PAGE[1:]), {"labelled_boxes": -1}),
    "a title misread and called text": (
        (replace(TITLE, label="text", text="# Harbor Ample"), *PAGE[1:]),
        {"labelled_boxes": -1, "title_errors": 1},
    ),
    "a title misread": ((replace(TITLE, text="# Harbor Ample"), *PAGE[1:]), {"title_errors": 1}),
    "a text misread": ((*PAGE[:-1], replace(CAPTION, text="<center>Figure 9: Mple</center>")), {"text_errors": 2}),
    "text in an image": ((*PAGE[:3], replace(IMAGE, text="Soup."), CAPTION), {"text_errors": 5}),
    "half of a box": ((replace(TITLE, boxes=(Box(100, 20, 300, 80),)), *PAGE[1:]), {"iou_sum": -0.5, "good_boxes": -1}),
    "most of a box": ((replace(TITLE, boxes=(Box(100, 20, 400, 80),)), *PAGE[1:]), {"iou_sum": -0.25}),
    "another order": ((TITLE, TEXT, HEAD, IMAGE, CAPTION), {"moved_blocks": 1}),
    "backwards": (PAGE[::-1], {"moved_blocks": 4}),
    "boxes in another order": ((TITLE, HEAD, replace(TEXT, boxes=TEXT.boxes[::-1]), IMAGE, CAPTION), {}),
    "two texts exchanged": (
        (replace(TITLE, text=HEAD.text), replace(HEAD, text=TITLE.text), *PAGE[2:]),
        {"title_errors": 2 * 11},
    ),
    "a span again": ((*PAGE, CAPTION), {**BOX, "text_errors": 32, "degenerate": 1}),
    "nothing": (
        (),
        {"answered_boxes": -6, "matched_boxes": -6, "iou_sum": -6.0, "good_boxes": -6, "labelled_boxes": -6}
        | {"title_errors": 22, "text_errors": 66},
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_moves_what_it_should(damage: str) -> None:
    answer, moved = DAMAGES[damage]
    assert change(PAGE, answer) == pytest.approx(moved)


def test_an_answer_without_an_end() -> None:
    assert asdict(quality(PAGE, PAGE, ended=False)) == {**asdict(quality(PAGE, PAGE)), "ended": False}


def test_surplus_boxes_are_counted_either_way() -> None:
    assert quality(PAGE, PAGE[1:]).surplus_boxes == -1
    assert quality(PAGE[1:], PAGE).surplus_boxes == 1


@pytest.mark.parametrize(("half", "errors"), [(0, len("The wagon of the lemon. ") + 23), (1, len(" Yellow 17.") + 10)])
def test_a_split_block_is_paired_with_the_part_that_overlaps_more(half: int, errors: int) -> None:
    """The other part is surplus, and its text is missing."""
    boxes = [box._replace(y2=(box.y1 + box.y2) / 2) if k == half else box for k, box in enumerate(TEXT.boxes)]
    texts = ("The wagon of the lemon.", "Yellow 17.")
    parts = [Block("text", (box,), text) for box, text in zip(boxes, texts, strict=True)]
    found = change(PAGE, (TITLE, HEAD, *parts, IMAGE, CAPTION))
    assert found == {"iou_sum": -0.5, "good_boxes": -1, "text_errors": errors}


@pytest.mark.parametrize(
    ("truth", "answer", "errors"),
    [
        ("The wagon.\n\nSoup.", "The wagon.\n\nSoup.", 0),
        ("The wagon.\n\nSoup.", "The wagon.\n\nSoap", 2),
        ("Soup.", written((replace(CAPTION, text="Soup."),)), 10),
    ],
)
def test_free_ocr_is_one_text(truth: str, answer: str, errors: int) -> None:
    found = measure(parse(truth), parse(answer), ended=True)
    assert (found.text_characters, found.text_errors, found.title_characters) == (len(truth), errors, 0)
    assert found.surplus_boxes == (1 if REF in answer else 0)


def test_what_is_said_before_the_first_span_is_surplus() -> None:
    found = measure(parse(written(PAGE)), parse("Soup.\n" + written(PAGE)), ended=True)
    assert found.text_errors == len("Soup.")


SAID = "The the apple. Apple, apple, apple soup"
IMAGES = [replace(IMAGE, boxes=(Box(100, y, 200, y + 50),)).written() for y in range(0, 500, 100)]


@pytest.mark.parametrize(
    ("truth", "answer", "degenerate"),
    [
        ("The wagon.", "The wagon wagon.", False),
        ("The wagon.", "The wagon wagon wagon.", True),
        ("The wagon.", "of the of the of the", True),
        ("The wagon wagon wagon.", "The wagon wagon wagon.", False),
        ("The wagon wagon wagon.", "wagon wagon wagon wagon", True),
        (SAID, SAID, False),
        ("<td>1</td>", "<td></td><td></td><td></td>", True),
        ("1.", "1...", True),
        ("".join(IMAGES[:3]), "".join(IMAGES[:3]), False),
        ("".join(IMAGES[:3]), "".join(IMAGES[:4]), True),  # a circle that drifts down the page
        ("".join(IMAGES[:2]), "".join(IMAGES[1:2] * 2), True),
        ("", "", False),
    ],
)
def test_turning_in_a_circle(truth: str, answer: str, degenerate: bool) -> None:
    assert is_degenerate(parse(truth), parse(answer)) == degenerate


TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8, unique=True).map(" ".join)


@st.composite
def pages(draw: st.DrawFn) -> Blocks:
    """Blocks one below the other, of one box or of two beside each other."""
    blocks = []
    for k in range(draw(st.integers(1, 7))):
        top, left, right = 140 * k, draw(st.integers(0, 200)), draw(st.integers(300, 480))
        boxes = [Box(left + shift, top, right + shift, top + 100) for shift in draw(st.sampled_from(([0], [0, 500])))]
        label = draw(st.sampled_from(LABELS))
        blocks.append(Block(label, tuple(boxes), "" if label == "image" else draw(TEXTS)))
    return tuple(blocks)


def dropped(blocks: Blocks, k: int) -> tuple[Blocks, dict[str, float]]:
    boxes, characters = len(blocks[k].boxes), len(blocks[k].text)
    lost: dict[str, float] = dict.fromkeys(LOST, -boxes)
    errors = "title_errors" if blocks[k].label in TITLES else "text_errors"
    return blocks[:k] + blocks[k + 1 :], {**lost, **({errors: characters} if characters else {})}


def renamed(blocks: Blocks, k: int) -> tuple[Blocks, dict[str, float]]:
    other = replace(blocks[k], label="equation" if blocks[k].label != "equation" else "footer")
    return (*blocks[:k], other, *blocks[k + 1 :]), {"labelled_boxes": -len(other.boxes)}


def misread(blocks: Blocks, k: int) -> tuple[Blocks, dict[str, float]]:
    errors = "title_errors" if blocks[k].label in TITLES else "text_errors"
    return (*blocks[:k], replace(blocks[k], text=blocks[k].text + "Q"), *blocks[k + 1 :]), {errors: 1}


def lowered(blocks: Blocks, k: int) -> tuple[Blocks, dict[str, float]]:
    boxes = tuple(box._replace(y1=box.y1 + 20) for box in blocks[k].boxes)
    return (*blocks[:k], replace(blocks[k], boxes=boxes), *blocks[k + 1 :]), {"iou_sum": -0.2 * len(boxes)}


def last(blocks: Blocks, k: int) -> tuple[Blocks, dict[str, float]]:
    moved = {"moved_blocks": 1.0} if k < len(blocks) - 1 else {}
    return blocks[:k] + blocks[k + 1 :] + blocks[k : k + 1], moved


@fuzz
@given(truth=pages(), damage=st.sampled_from([dropped, renamed, misread, lowered, last]), data=st.data())
def test_damages_of_any_page(truth: Blocks, damage: Damage, data: st.DataObject) -> None:
    assert quality(truth, truth).iou_sum == sum(len(block.boxes) for block in truth)
    answer, moved = damage(truth, data.draw(st.integers(0, len(truth) - 1)))
    found = change(truth, answer)
    found.pop("degenerate", None)  # several images in a row are three labels in a row
    assert found == pytest.approx(moved)
