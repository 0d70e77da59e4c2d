"""Deep seams: what each block gave, in however many passes; that they are the vendor's is shown in tests/parity."""

import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.contract import GRID
from pytest_dsocr.records.block_seams import BLOCKS, in_stage_order, watch_deep
from pytest_dsocr.records.passes import SURPLUS, Places, places_of
from pytest_dsocr.records.reference_result import Seam

SAM, LAYERS = BLOCKS["sam"], BLOCKS["prefill"]


def same(seam: Seam, tensor: Tensor) -> None:
    assert (seam.shape, seam.sha256) == (tuple(tensor.shape), Seam.of(tensor).sha256)


class Toy:
    """Subject with one block per stage, which returns its input."""

    def __init__(self) -> None:
        self.blocks = {f"{path}.0": nn.Identity() for path in BLOCKS.values()}

    def module(self, name: str) -> nn.Module:
        if name not in self.blocks:
            raise AttributeError(name)
        return self.blocks[name]

    def watched(self, path: str, *passes: Tensor, places: Places | None = None) -> dict[str, Seam]:
        """Run a stage's block on each of ``passes``, and write into its output; what was seen."""
        with watch_deep(self.module, places) as deep:
            for one in passes:
                self.blocks[f"{path}.0"](one.clone()).zero_()
        return deep.seams


PAGE_VIEW, CROPS_VIEWS = torch.full((1, 64, 64, 8), 9.0), torch.arange(3.0).view(3, 1, 1, 1).expand(3, 40, 40, 8)


PASSES = {
    "crops at once": (CROPS_VIEWS, PAGE_VIEW),
    "the page first": (PAGE_VIEW, CROPS_VIEWS),
    "one by one": (*CROPS_VIEWS.split(1), PAGE_VIEW),
    "one by one, the page among them": (CROPS_VIEWS[:1], PAGE_VIEW, *CROPS_VIEWS[1:].split(1)),
}


@pytest.mark.parametrize("passes", PASSES.values(), ids=PASSES)
def test_views_are_distinguished_however_they_run(passes: tuple[Tensor, ...]) -> None:
    expected = {"sam.crops/0": Seam.of(CROPS_VIEWS), "sam.page/0": Seam.of(PAGE_VIEW)}
    seams = Toy().watched(SAM, *passes, places=places_of(expected, {GRID: torch.tensor([[3, 1]])}))
    assert list(seams) == ["sam.crops/0", "sam.page/0"]
    same(seams["sam.crops/0"], CROPS_VIEWS)
    same(seams["sam.page/0"], PAGE_VIEW)


def test_a_prompt_that_runs_again_and_decode_steps_are_left_out() -> None:
    passes = [torch.full((1, tokens, 8), fill) for tokens, fill in ((1, 1.0), (5, 2.0), (1, 3.0), (5, 4.0))]
    [(name, seam)] = Toy().watched(LAYERS, *passes).items()
    assert (name, seam.shape, seam.mean) == ("prefill/0", (1, 5, 8), 2.0)


def test_of_the_vendors_calls_the_first_of_each_kind_counts() -> None:
    seams = Toy().watched(SAM, CROPS_VIEWS, PAGE_VIEW, CROPS_VIEWS[:2], PAGE_VIEW + 1)
    assert list(seams) == ["sam.crops/0", "sam.page/0"]
    same(seams["sam.crops/0"], CROPS_VIEWS)
    same(seams["sam.page/0"], PAGE_VIEW)


def test_a_tensor_that_cannot_be_placed_has_a_reason_and_no_hook_is_left() -> None:
    toy, expected = Toy(), {"prefill/0": Seam.of(torch.ones(1, 512, 8))}
    places = places_of(expected, {GRID: torch.ones(1, 2), "input_ids": torch.ones(1, 512)})
    with watch_deep(toy.module, places) as deep:
        toy.module(f"{LAYERS}.0")(torch.ones(1, 640, 8))
        toy.module(f"{SAM}.0")(PAGE_VIEW)
    assert (deep.seams, deep.unplaced) == ({}, {"prefill/0": SURPLUS})
    assert all(not block._forward_hooks for block in toy.blocks.values())


def test_blocks_stand_in_front_of_their_stage_and_unknown_names_last() -> None:
    ordered = [
        *("sam.crops/2", "sam.crops/10", "sam.crops", "sam.page/0", "sam.page", "clip.page/1", "clip.page"),
        *("projector.page", "vision_fusion", "prefill/9", "prefill/11", "prefill", "own", "own/part"),
    ]
    seam = Seam.of(torch.ones(2))
    assert list(in_stage_order(dict.fromkeys([*ordered[:-2][::-1], "own", "own/part"], seam))) == ordered
