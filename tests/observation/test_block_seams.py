"""Deep seams: what each block gave, by the names, the shapes and the bits that the vendor's run has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.block_seams import BLOCKS, in_stage_order, watch_deep
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Observation, Seam
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import write_page
from tests.conftest import model_of
from tests.crops import CROPPED, CROPS
from tests.recordings import FOLDER, find_recording

LIMITS = tolerances("float32")
PAGE, STEPS = "receipt_086", 4
SAM, CLIP, LAYERS = BLOCKS["sam"], BLOCKS["clip"], BLOCKS["prefill"]


def watched(session: Engine[Any], page: Path, preset: Preset) -> dict[str, Seam]:
    inputs = session.prepare(page, preset=preset)
    with watch_deep(model_of(session).get_submodule) as deep:
        session.prefill(inputs)
    return deep.seams


def blocks(session: Engine[Any]) -> dict[str, int]:
    """How many there are of each stage."""
    arch = model_of(session).arch
    return {"sam": arch.sam.layers, "clip": arch.clip.layers, "prefill": arch.decoder.num_hidden_layers}


def names(stage: str, count: int) -> list[str]:
    return [f"{stage}/{depth}" for depth in range(count)]


@pytest.mark.parametrize(("preset", "views"), [(CROPS, ["crops", "page"]), (DEFAULT.presets["tiny"], ["page"])])
def test_every_block_is_seen_in_the_stages_order(
    tiny: Engine[Any], preset: Preset, views: list[str], tmp_path: Path
) -> None:
    there = blocks(tiny)
    of_views = [name for stage in ("sam", "clip") for view in views for name in names(f"{stage}.{view}", there[stage])]
    seams = watched(tiny, write_page(CROPPED, tmp_path), preset)
    assert list(seams) == [*of_views, *names("prefill", there["prefill"])]
    assert all(seam.values is None for seam in seams.values())


def test_a_seam_is_what_the_next_module_is_handed(tiny: Engine[Any], tmp_path: Path) -> None:
    inputs = tiny.prepare(write_page(CROPPED, tmp_path), preset=CROPS)
    model = model_of(tiny)
    last = {stage: count - 1 for stage, count in blocks(tiny).items()}
    with (
        watch_deep(model.get_submodule) as deep,
        handed(model.model.sam_model.neck) as to_neck,
        handed(model.get_submodule(f"{CLIP}.1")) as to_second,
        handed(model.model.norm) as to_norm,
    ):
        state = tiny.prefill(inputs)
    [vision] = state.visions
    whole = [vision.crops, vision.page]
    for k, view in enumerate(("crops", "page")):
        same(deep.seams[f"sam.{view}/{last['sam']}"], to_neck[k].permute(0, 2, 3, 1))
        same(deep.seams[f"clip.{view}/0"], to_second[k])
        of_view = whole[k]
        assert of_view is not None
        same(deep.seams[f"clip.{view}/{last['clip']}"], of_view["clip"])
    same(deep.seams[f"prefill/{last['prefill']}"], to_norm[0])


def same(seam: Seam, tensor: Tensor) -> None:
    assert (seam.shape, seam.sha256) == (tuple(tensor.shape), Seam.of(tensor).sha256)


@contextmanager
def handed(module: nn.Module) -> Iterator[list[Tensor]]:
    """What ``module`` is handed, pass by pass."""
    seen: list[Tensor] = []
    with module.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone())):
        yield seen


class Toy:
    """One block a stage, found as a subject's modules are, that gives what it is handed, as decoder layers do."""

    def __init__(self) -> None:
        self.blocks = {f"{path}.0": nn.Identity() for path in BLOCKS.values()}

    def module(self, name: str) -> nn.Module:
        if name not in self.blocks:
            raise AttributeError(name)
        return self.blocks[name]

    def watched(self, path: str, *passes: Tensor) -> dict[str, Seam]:
        """Run a stage's block on each of ``passes``, and write into what it gave; what was seen."""
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
def test_views_are_told_apart_however_they_run(passes: tuple[Tensor, ...]) -> None:
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
    [
        (LAYERS, [(1, 512, 8), (1, 390, 8)], "prefill/0"),
        (SAM, [(1, side, side, 8) for side in (40, 64, 80)], "sam"),
    ],
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


@pytest.fixture(scope="module")
def mini() -> Engine[Any]:
    return Engine.from_checkpoint(MINI)


@pytest.fixture(scope="module")
def case() -> Case:
    """A page with crops."""
    [page] = [page for page in shipped("all") if page.stem == PAGE]
    return make_case(page, "markdown", "gundam", STEPS)


@pytest.fixture(scope="module")
def expected() -> Observation:
    """What was recorded of the page, as far as the first steps."""
    recorded = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()).cases[f"{PAGE}-gundam-markdown"]
    return replace(recorded.observation, steps=recorded.observation.steps[:STEPS])


def compared(session: Engine[Any], case: Case, expected: Observation) -> list[Comparison]:
    return list(compare_observations(follow(SessionSubject(session), case, expected), expected, LIMITS))


def test_every_block_of_mini_is_the_vendors(mini: Engine[Any], case: Case, expected: Observation) -> None:
    there = blocks(mini)
    deep = {one.what: one for one in compared(mini, case, expected) if "/" in one.what}
    assert len(deep) == 2 * there["sam"] + 2 * there["clip"] + there["prefill"]
    assert not {name: one.measured for name, one in deep.items() if one.verdict not in (Verdict.MATCH, Verdict.DRIFT)}


@pytest.mark.parametrize(
    ("module", "first", "plant"),
    [
        (f"{SAM}.2.norm1", "sam.crops/2", "epsilon"),
        (f"{LAYERS}.3.post_attention_layernorm", "prefill/3", "weight"),
    ],
)
def test_the_first_wrong_seam_names_the_block_that_broke(
    mini: Engine[Any], case: Case, expected: Observation, module: str, first: str, plant: str
) -> None:
    norm: Any = model_of(mini).get_submodule(module)
    eps, weight = norm.eps, norm.weight.clone()
    try:
        if plant == "epsilon":
            norm.eps = 1.0
        else:
            norm.weight.mul_(1.01)
        comparisons = compared(mini, case, expected)
    finally:
        norm.eps = eps
        norm.weight.copy_(weight)
    wrong = [one for one in comparisons if one.verdict is Verdict.WRONG]
    assert wrong[0].what == first
    assert wrong[0].error is not None
    assert 3 * LIMITS.seam < wrong[0].error < 1
