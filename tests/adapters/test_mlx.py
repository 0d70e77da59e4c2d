"""Shared parts of the mlx adapters: watched modules, and the views of their results. It needs no mlx."""

from types import SimpleNamespace

import pytest
import torch

from pytest_dsocr.adapters import mlx
from pytest_dsocr.adapters.mlx import vision_of, watched
from pytest_dsocr.contract import GRID

CUT, WHOLE, PAGES = [[2, 1]], [[1, 1]], [[1, 1]] * 2


def test_results_of_modules_are_kept_by_stage_and_the_modules_put_back() -> None:
    model = SimpleNamespace(first=lambda x: x + 1, second=lambda x: 2 * x)
    before = dict(vars(model))
    with watched(model, {"sam": "first", "clip": "second"}) as seen:
        assert model.second(model.first(1)) + model.first(5) == 10
    assert seen == {"sam": [2, 6], "clip": [4]}
    with pytest.raises(TypeError), watched(model, {"sam": "first"}):
        model.first(None)
    assert vars(model) == before


@pytest.mark.parametrize(
    ("grid", "calls", "views"),
    [
        (CUT, (2, 1), {"sam.crops": 2, "sam.page": 1}),
        (CUT, (1, 1, 1), {"sam.crops": 2, "sam.page": 1}),
        (WHOLE, (1,), {"sam.page": 1}),
        (PAGES, (1, 1), {"sam.page": 2}),
    ],
)
def test_results_become_crops_and_page(
    grid: list[list[int]], calls: tuple[int, ...], views: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlx, "to_torch", lambda value: value)
    inputs = {"images_seq_mask": torch.tensor([[False, True, True]]), GRID: torch.tensor(grid)}
    embeds = torch.arange(3.0)[None, :, None]
    found = vision_of(embeds, {"sam": [torch.zeros(count, 4) for count in calls]}, inputs)
    assert found.pop("vision_fusion").flatten().tolist() == [1, 2]
    assert {name: len(value) for name, value in found.items()} == views
