"""Views, seen from outside; ``test_inputs.py`` compares them bit for bit with the vendor's."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pytest_dsocr.contract.image import crops, global_view
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import rgb

GREY = 127
SHOWING_BARS = ["base", "large", "gundam"]


@pytest.mark.parametrize("preset", DEFAULT.presets.values(), ids=list(DEFAULT.presets))
@pytest.mark.parametrize("size", [(1400, 700), (700, 1400), (640, 640), (30, 20)])
def test_the_whole_page_is_a_square_of_the_presets_size(preset: Preset, size: tuple[int, int]) -> None:
    assert global_view(rgb(*size), preset).size == (preset.view_size, preset.view_size)


@pytest.mark.parametrize("name", DEFAULT.presets)
def test_bars_beside_a_white_page(name: str) -> None:
    """A wide page stands between bars of an exact grey, or is squashed where the vendor squashes."""
    view = np.asarray(global_view(Image.new("RGB", (1200, 600), "white"), DEFAULT.presets[name]))
    rows = view[:, :, 0].mean(axis=1)
    quarter = len(rows) // 4
    expected = np.full(len(rows), 255.0)
    if name in SHOWING_BARS:
        expected[:quarter] = expected[-quarter:] = GREY
    assert rows.tolist() == expected.tolist()


def test_a_small_view_beside_crops_is_padded_all_the_same() -> None:
    view = global_view(Image.new("RGB", (1200, 600), "white"), Preset("mine", 512, 640, crop=True))
    assert view.getpixel((0, 0)) == (GREY, GREY, GREY)


def test_crops_are_cut_row_by_row() -> None:
    columns, rows = 3, 2
    indices = np.arange(columns * rows, dtype=np.uint8).reshape(rows, columns)
    page = Image.fromarray(np.kron(indices * 40, np.ones((700, 700), np.uint8))).convert("RGB")
    shown = [np.asarray(crop)[320, 320].tolist() for crop in crops(page, (columns, rows))]
    assert shown == [[index * 40] * 3 for index in range(6)]


def test_crops_are_stretched_and_not_padded() -> None:
    cut = crops(Image.new("RGB", (5000, 600), "white"), (8, 1))
    assert [crop.size for crop in cut] == [(640, 640)] * 8
    assert all((np.asarray(crop) == 255).all() for crop in cut)


def test_an_uncut_page_has_no_crops() -> None:
    assert crops(rgb(100, 100), (1, 1)) == []


@pytest.mark.parametrize("size", [(9000, 2), (2, 9000), (2048, 1)])
def test_a_page_that_vanishes_in_the_view_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(DsocrError, match=f"{size[0]} x {size[1]} px vanishes in a view of 1024 x 1024"):
        global_view(Image.new("RGB", size), DEFAULT.presets["gundam"])


def test_one_row_of_a_narrow_page_is_enough() -> None:
    view = np.asarray(global_view(Image.new("RGB", (2047, 1), "white"), DEFAULT.presets["gundam"]))
    assert (view == 255).all(axis=(1, 2)).sum() == 1
