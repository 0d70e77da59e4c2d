"""Each ablation breaks what it says and nothing before it, and the session is whole again afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ci.training import ablations
from ci.training.ablations import alike, read_broken
from ci.training.broken import ABLATIONS, INTACT, broken
from ci.training.quality import measure
from ci.training.reading import Reading, open_page
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.engine.session import Session
from suites.contract.pages import PAGES
from tests.conftest import model_of
from tests.crops import CROPS

TOKENS = 6
CROP_TOKENS, PAGE_TOKENS = 20 * (20 + 1), 4 * (4 + 1)
VISION = {f"{stage}.{view}" for stage in ("sam", "clip", "projector") for view in ("crops", "page")}
OF_CROPS = {name for name in VISION if name.endswith("crops")}
OF_PAGE = VISION - OF_CROPS
AFTER_SAM = VISION - {"sam.crops", "sam.page"}
FUSED = {"vision_fusion", "prefill"}
CHANGED: dict[str, set[str]] = {
    "crops blank": OF_CROPS | FUSED,
    "whole view blank": OF_PAGE | FUSED,
    "crops laid out by columns": OF_CROPS | FUSED,
    "whole view before the crops": FUSED,
    "separator zero": FUSED,
    "newline zero": FUSED,
    "CLIP's positions zero": AFTER_SAM | FUSED,
    "SAM's positions zero": VISION | FUSED,
    "SAM's relative positions zero": VISION | FUSED,
    "shared experts off": {"prefill"},
    "every routed expert the last": {"prefill"},
}
NAMED = {ablation.name: ablation for ablation in ABLATIONS}


@pytest.fixture(scope="module")
def inputs(tiny: Session[Any]) -> Inputs:
    """A page of 2 x 2 crops, seen whole at 256 px."""
    return tiny.prepare(PAGES["square"](), preset=CROPS)


@pytest.fixture(scope="module")
def intact(tiny: Session[Any], inputs: Inputs) -> dict[str, Tensor]:
    return seams(tiny, inputs)


@pytest.fixture(scope="module")
def found(tiny: Session[Any], inputs: Inputs) -> Callable[[str], dict[str, Tensor]]:
    """Gives the seams under an ablation, each computed once."""

    @cache
    def of(name: str) -> dict[str, Tensor]:
        with broken(tiny, NAMED[name]):
            return seams(tiny, inputs)

    return of


@pytest.fixture(autouse=True)
def mended(tiny: Session[Any]) -> Iterator[None]:
    """Whatever a test does, the session that it shares with others is as it was."""
    pipeline = tiny.pipeline
    kept = {name: weight.clone() for name, weight in model_of(tiny).named_parameters()}
    yield
    assert tiny.pipeline is pipeline
    assert all(torch.equal(weight, kept[name]) for name, weight in model_of(tiny).named_parameters())


def seams(session: Session[Any], inputs: Inputs) -> dict[str, Tensor]:
    state = session.prefill(inputs)
    return {**state.visions[0].seams, "prefill": state.logits}


def test_every_ablation_has_its_expectation() -> None:
    assert set(NAMED) == set(CHANGED)
    assert len(NAMED) == len(ABLATIONS)


@pytest.mark.parametrize("name", CHANGED)
def test_an_ablation_changes_its_seams_and_none_before(
    name: str, found: Callable[[str], dict[str, Tensor]], intact: dict[str, Tensor]
) -> None:
    seen = found(name)
    assert {seam for seam in intact if not torch.equal(seen[seam], intact[seam])} == CHANGED[name]


def test_intact_is_intact(tiny: Session[Any], inputs: Inputs, intact: dict[str, Tensor]) -> None:
    with broken(tiny, INTACT):
        found = seams(tiny, inputs)
    assert all(torch.equal(found[seam], intact[seam]) for seam in intact)


def test_a_session_is_mended_after_an_error(tiny: Session[Any]) -> None:
    def fail() -> None:
        with broken(tiny, NAMED["separator zero"]):
            assert model_of(tiny).view_seperator.count_nonzero() == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()


@pytest.mark.parametrize(
    ("name", "rows"), [("separator zero", [-1]), ("newline zero", [*range(20, 420, 21), *range(424, 440, 5)])]
)
def test_a_vector_is_zeroed_where_it_stands(
    name: str, rows: list[int], found: Callable[[str], dict[str, Tensor]], intact: dict[str, Tensor]
) -> None:
    expected = intact["vision_fusion"].clone()
    expected[rows] = 0.0
    assert torch.equal(found(name)["vision_fusion"], expected)


def test_the_whole_view_comes_first_and_the_separator_last(
    found: Callable[[str], dict[str, Tensor]], intact: dict[str, Tensor]
) -> None:
    before, after = intact["vision_fusion"], found("whole view before the crops")["vision_fusion"]
    assert torch.equal(after[:PAGE_TOKENS], before[CROP_TOKENS:-1])
    assert torch.equal(after[PAGE_TOKENS:-1], before[:CROP_TOKENS])
    assert torch.equal(after[-1], before[-1])


ZEROED = {
    "separator zero": r"model\.view_seperator",
    "newline zero": r"model\.image_newline",
    "CLIP's positions zero": r"model\.vision_model\.embeddings\.position_embedding\.weight",
    "SAM's positions zero": r"model\.sam_model\.pos_embed",
    "SAM's relative positions zero": r"model\.sam_model\.blocks\.[0-3]\.attn\.rel_pos_[hw]",
    "shared experts off": r"model\.layers\.[12]\.mlp\.shared_experts\.down_proj\.weight",
}


@pytest.mark.parametrize("name", ZEROED)
def test_what_is_zeroed_is_all_that_its_name_says(name: str, tiny: Session[Any]) -> None:
    parameters = dict(model_of(tiny).named_parameters())
    with broken(tiny, NAMED[name]):
        zero = {parameter for parameter, weight in parameters.items() if not weight.count_nonzero()}
    assert zero == {parameter for parameter in parameters if re.fullmatch(ZEROED[name], parameter)} != set()


def test_crops_by_columns_are_the_same_crops_elsewhere(
    found: Callable[[str], dict[str, Tensor]], intact: dict[str, Tensor]
) -> None:
    seen = found("crops laid out by columns")["projector.crops"]
    assert torch.equal(seen, intact["projector.crops"][[0, 2, 1, 3]])


def test_the_last_expert_stands_for_all(tiny: Session[Any]) -> None:
    experts = [weight for name, weight in model_of(tiny).named_parameters() if ".layers.1.mlp.experts." in name]
    last = [weight.clone() for weight in experts[-3:]]
    with broken(tiny, NAMED["every routed expert the last"]):
        assert all(torch.equal(weight, other) for weight, other in zip(experts, 8 * last, strict=True))


@pytest.mark.parametrize("name", ["crops blank", "crops laid out by columns", "whole view before the crops"])
def test_a_page_without_crops_has_none_to_break(name: str, tiny: Session[Any]) -> None:
    inputs = tiny.prepare(PAGES["tiny"](), preset=CROPS)
    assert inputs.images_spatial_crop.tolist() == [[1, 1]]
    whole = seams(tiny, inputs)
    with broken(tiny, NAMED[name]):
        assert torch.equal(seams(tiny, inputs)["prefill"], whole["prefill"])


@pytest.fixture
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablations, "CEILING", TOKENS)


def test_a_page_is_read_intact_and_broken(few_tokens: None) -> None:
    readings = read_broken("synthetic:tiny", 0, prompt="markdown", preset="tiny")
    assert list(readings) == [INTACT.name, *NAMED]
    assert {len(reading.token_ids) for reading in readings.values()} == {TOKENS}
    assert {reading.page for reading in readings.values()} == {open_page(0)[0]}
    assert readings["crops blank"].token_ids == readings[INTACT.name].token_ids, "this preset has no crops"
    assert len({reading.token_ids for reading in readings.values()}) > 3
    share = alike([readings["separator zero"]], [readings[INTACT.name]])
    assert share in {k / TOKENS for k in range(TOKENS + 1)}


INTACT_IDS = [(1, 2, 3, 4), (5, 6)]


@pytest.mark.parametrize(
    ("broken_ids", "share"), [([(1, 2, 3, 4), (5, 6)], 1.0), ([(1, 9, 3, 4), (5, 6)], 0.5), ([(9,), (5, 9, 6)], 1 / 6)]
)
def test_alike_is_the_share_of_tokens_before_the_first_other(broken_ids: list[tuple[int, ...]], share: float) -> None:
    empty = parse("")
    reading = Reading("page", "", (), measure(empty, empty, ended=True), 0, {}, 0)
    broken_readings, intact = ([replace(reading, token_ids=ids) for ids in said] for said in (broken_ids, INTACT_IDS))
    assert alike(broken_readings, intact) == share


def test_the_command(few_tokens: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--checkpoint", "synthetic:tiny", "--preset", "tiny", "--pages", "2", "--out", str(tmp_path)]
    assert ablations.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "synthetic:tiny, 2 pages held out, tiny"
    assert [line[:32].strip() for line in lines[3 : 4 + len(ABLATIONS)]] == [INTACT.name, *NAMED]
    told = [line.split()[-2] for line in lines[3 : 4 + len(ABLATIONS)]]
    assert (told[0], len(set(told)) > 1) == ("100.0", True)
    written = json.loads((tmp_path / "ablations.json").read_text(encoding="utf-8"))
    assert list(written["ablations"]) == [INTACT.name, *NAMED]
    alikes = {name: figures["alike"] for name, figures in written["ablations"].items()}
    assert (alikes[INTACT.name], alikes["crops blank"]) == (1.0, 1.0), "this preset has no crops"
    assert min(alikes.values()) < 1.0
    assert written["ablations"][INTACT.name]["exact_boxes"]["whole"] == 2
