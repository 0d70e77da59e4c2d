"""The bars around a page in its square view: of another level, of another width, or absent.

Shapes: 3 colours, H x W pixels of one view, in levels.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.contract.image import GREY
from pytest_dsocr.describe.description import Description

CLOSE = 0.6
"""Largest difference in levels between values that count as equal."""
LEAST_PX = 2
COARSE_PX = 4


class PageBox(NamedTuple):
    """The part of a view that shows the page."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    @property
    def inside(self) -> tuple[slice, slice]:
        """Lines and columns."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def __str__(self) -> str:
        return f"lines {self.top} to {self.bottom - 1} and columns {self.left} to {self.right - 1}"


def page_box(view: Tensor, level: float) -> PageBox:
    """Return the box around everything that is not of one level; the whole view if bars would leave nothing."""
    return _around(((view - level).abs() > CLOSE).any(0)) or PageBox(0, view.shape[1], 0, view.shape[2])


def _around(mask_HW: Tensor) -> PageBox | None:
    """Return the smallest box around all places of a mask; None if it has none."""
    lines, columns = (mask_HW.any(dim).nonzero().flatten() for dim in (1, 0))
    if not len(lines):
        return None
    return PageBox(int(lines[0]), int(lines[-1]) + 1, int(columns[0]), int(columns[-1]) + 1)


def other_bars(actual: Tensor, expected: Tensor) -> Description | None:
    """Describe bars of another level or width around the page of one view, ``[3, H, W]``.

    White margins of a page look like bars. The reading that explains most counts.
    """
    whole = PageBox(0, expected.shape[1], 0, expected.shape[2])
    readings: list[tuple[PageBox, float | None]] = [(whole, None)]
    if (level := _level_of_bars(actual)) is not None:
        readings.append((page_box(actual, level), level))
    found = [_of_box(actual, expected, *one, whole) for one in readings]
    return max((one for one in found if one is not None), key=lambda one: one.share, default=None)


def same_grey_bars(actual: Tensor, expected: Tensor) -> str | None:
    """Say where the page is if both views have the usual bars, and the page is elsewhere."""
    own, right = (page_box(one, GREY[0]) for one in (actual, expected))
    whole = (expected.shape[1], expected.shape[2])
    if own == right or whole in (own.size, right.size):
        return None
    return f"the page is at {own} of the view instead of {right}"


def covered(actual: Tensor, expected: Tensor) -> Description | None:
    """Describe a part of one view that has one level instead of the page; all else must be right."""
    differing = ((actual - expected).abs() > CLOSE).any(0)
    if (box := _around(differing)) is None:
        return None
    page = page_box(expected, GREY[0])
    level = float(actual[0, box.top, box.left])

    def is_level(box: PageBox) -> bool:
        return float((actual[:, *box.inside] - level).abs().max()) < CLOSE

    is_of_page = page.top <= box.top < box.bottom <= page.bottom and page.left <= box.left < box.right <= page.right
    if min(box.size) < LEAST_PX or not is_level(box) or not is_of_page:
        return None
    (height, width), (of_height, of_width) = box.size, page.size
    where = f"{box} are"
    if is_level(box._replace(left=page.left, right=page.right)) and height < of_height:
        ends = {box.bottom == page.bottom: "last", box.top == page.top: "first"}
        where = f"the {ends[True]} {height} of the page's {of_height} lines are" if True in ends else where
    elif is_level(box._replace(top=page.top, bottom=page.bottom)) and width < of_width:
        ends = {box.right == page.right: "last", box.left == page.left: "first"}
        where = f"the {ends[True]} {width} of the page's {of_width} columns are" if True in ends else where
    text = f"{where} level {level:.0f}{' (the grey of bars)' * (abs(level - GREY[0]) < CLOSE)}; all others are right"
    return Description("covered", text, 1.0, int(differing.sum()))


def _of_box(actual: Tensor, expected: Tensor, own: PageBox, level: float | None, whole: PageBox) -> Description | None:
    right = page_box(expected, GREY[0])
    if own == right:
        if level is None or right == whole or abs(level - GREY[0]) < CLOSE:
            return None
        return _of_level(actual, expected, level, right)
    if min(*own.size, *right.size) < LEAST_PX:
        return None
    page = expected[:, *right.inside]
    predicted = torch.full_like(expected, level if level is not None else 0.0)
    is_moved = own.size == right.size
    at = page if is_moved else F.interpolate(page[None], own.size, mode="bicubic", antialias=True)[0].clamp(0, 255)
    predicted[:, *own.inside] = at
    text = f"the page is at {own} of the view instead of {right}"
    if own == whole:
        text = f"the page fills the view, without bars; it should be at {right}"
    elif right == whole:
        text = f"there are bars, and the page is at {own}; it should fill the view"
    if is_moved:
        return Description("moved", text, _share(actual, expected, predicted), actual.numel())
    coarse = (F.avg_pool2d(one, COARSE_PX) for one in (actual, expected, predicted))  # the resizing is another matter
    return Description("bars", text, _share(*coarse), actual.numel() // COARSE_PX**2)


def _of_level(actual: Tensor, expected: Tensor, level: float, box: PageBox) -> Description:
    predicted = torch.full_like(expected, level)
    predicted[:, *box.inside] = expected[:, *box.inside]
    text = f"the bars around the page have level {level:.0f} instead of {GREY[0]}; the page itself is right"
    return Description("bars", text, _share(actual, expected, predicted), actual.numel())


def _level_of_bars(view: Tensor) -> float | None:
    """Return the one level of a view's outermost lines or columns, if it has bars on one of its sides."""
    for edge in (view[:, 0], view[:, -1], view[..., 0], view[..., -1]):
        level = float(edge[0, 0])
        if float((edge - level).abs().max()) < CLOSE:
            return level
    return None


def _share(actual: Tensor, expected: Tensor, predicted: Tensor) -> float:
    left, before = (actual - predicted).norm(), (actual - expected).norm()
    return max(0.0, 1 - float(left / before)) if before else 0.0
