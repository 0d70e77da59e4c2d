"""Outputs of another block than the expected one, or of fewer blocks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.step import INSIDE
from pytest_dsocr.explain.computed import Seen, right_of
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.described import describe_seen
from pytest_dsocr.explain.explain import of_seam
from pytest_dsocr.explain.inside import of_early_end, of_other_block
from pytest_dsocr.explain.mistake import Changes, blocks_of, home_of
from pytest_dsocr.explain.question import PageRead, Question
from pytest_dsocr.explain.search import Search
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam
from tests.describe.real import block, clean, engine


def test_an_output_of_another_block_is_told() -> None:
    with torch.no_grad():
        gave = blocks_of(engine(), "clip")[1](given := block("clip.page/0").given)
    found = of_other_block(clean(), TensorName.parse("clip.page/0"), gave, given)
    assert found is not None
    assert "that of block 1" in found.text


@pytest.mark.parametrize(
    ("what", "left", "words"),
    [
        ("clip.page", 1, "block 2 of 0 to 3: the last block is left out"),
        ("sam.page", 2, "block 1 of 0 to 3: the last 2 blocks are left out"),
        ("prefill", 1, "block 3 of 0 to 4: the last block is left out"),
    ],
)
def test_a_stage_that_ends_a_block_early_is_told(what: str, left: int, words: str) -> None:
    name = TensorName.parse(what)
    right, given = right_of(clean(), name)
    owner, attribute = home_of(engine(), name.stage)
    with Changes() as changes, torch.no_grad():
        changes.set(owner, attribute, nn.ModuleList(blocks_of(engine(), name.stage)[:-left]))
        gave = clean().run(name.stage, name.view)
    [found] = describe_seen(clean(), Seen(what, gave, tuple(given)), Seam.of(right))
    assert (found.kind, found.share) == (INSIDE, 1.0), found.text
    assert words in found.text


def test_a_block_s_output_without_what_follows_the_blocks_is_told() -> None:
    name, right = TensorName.parse("clip.page"), block("clip.page/3").gave

    def normed() -> Tensor:
        return F.normalize(clean().run(name.stage, name.view), dim=-1)

    with torch.no_grad():
        found, none = (of_early_end(clean(), name, gave, normed) for gave in (right, F.normalize(right, dim=-1)))
    assert found is not None
    assert "block 3 of 0 to 3: what follows the blocks is left out" in found.text
    assert none is None


def test_a_block_that_is_left_out_is_searched_for_though_every_block_is_right() -> None:
    seams = {f"clip.page/{depth}": Seam.of(block(f"clip.page/{depth}").gave) for depth in range(4)}
    seams["clip.page"] = seams["clip.page/2"]
    question = Question(PageRead({}, "", ()), "clip.page", int(Level.MODULES), 60.0, 1e-4, seams=seams)
    found = of_seam(clean(), Search(question, Deadline(60.0)))
    assert (found.found, found.explained) == (("clip.last-block-left-out",), True)
