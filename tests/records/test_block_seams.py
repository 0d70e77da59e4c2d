"""Deep seams: what each block gave, in however many passes; that they are the vendor's is shown in tests/parity."""

import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.records.block_seams import BLOCKS, in_stage_order, watch_deep
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

    def watched(self, path: str, *passes: Tensor) -> dict[str, Seam]:
        """Run a stage's block on each of ``passes``, and write into its output; what was seen."""
        with watch_deep(self.module) as deep:
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
    seams = Toy().watched(SAM, *passes)
    assert list(seams) == ["sam.crops/0", "sam.page/0"]
    same(seams["sam.crops/0"], CROPS_VIEWS)
    same(seams["sam.page/0"], PAGE_VIEW)


def test_what_runs_again_and_decode_steps_are_left_out() -> None:
    [(name, seam)] = Toy().watched(SAM, PAGE_VIEW, PAGE_VIEW + 1).items()
    assert (name, seam.mean) == ("sam.page/0", 9.0)
    passes = [torch.full((1, tokens, 8), fill) for tokens, fill in ((1, 1.0), (5, 2.0), (1, 3.0), (5, 4.0))]
    [(name, seam)] = Toy().watched(LAYERS, *passes).items()
    assert (name, seam.shape, seam.mean) == ("prefill/0", (1, 5, 8), 2.0)


@pytest.mark.parametrize(
    ("path", "shapes", "stage"),
    [(LAYERS, [(1, 512, 8), (1, 390, 8)], "prefill/0"), (SAM, [(1, side, side, 8) for side in (40, 64, 80)], "sam")],
)
def test_passes_that_are_not_the_vendors_are_an_error_and_no_hook_is_left(
    path: str, shapes: list[tuple[int, ...]], stage: str
) -> None:
    toy = Toy()
    with pytest.raises(DsocrError, match=rf"{path}\.0 gave .*, so {stage} cannot be compared; have it run once"):
        toy.watched(path, *(torch.ones(shape) for shape in shapes))
    assert all(not block._forward_hooks for block in toy.blocks.values())


def test_blocks_stand_in_front_of_their_stage_and_unknown_names_last() -> None:
    ordered = [
        *("sam.crops/2", "sam.crops/10", "sam.crops", "sam.page/0", "sam.page", "clip.page/1", "clip.page"),
        *("projector.page", "vision_fusion", "prefill/9", "prefill/11", "prefill", "own", "own/part"),
    ]
    seam = Seam.of(torch.ones(2))
    assert list(in_stage_order(dict.fromkeys([*ordered[:-2][::-1], "own", "own/part"], seam))) == ordered
