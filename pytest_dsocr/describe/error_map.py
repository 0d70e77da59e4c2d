"""Errors of a wrong tensor by token, laid out as the page: views, crops, rows of the image's tokens, and channels.

Shapes: B views, N rows of a view, C channels, h x w positions.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.describe.description import ErrorPanel
from pytest_dsocr.describe.error_digits import digit
from pytest_dsocr.describe.layout import LOGIT, ImageTokens
from pytest_dsocr.describe.pair import RowPair

MOST_ALONE, MOST_OF_SEVERAL, MOST_CHANNELS = 32, 20, 64
"""Positions along a view's side, and groups of channels."""
TOKENS_A_ROW = 32
UNPLACED_VIEWS = 4
"""Views that are shown if their places on the page are unknown."""


def error_map(
    pair: RowPair, tokens: ImageTokens, image: Tensor | None = None, *, is_of_crops: bool
) -> tuple[ErrorPanel, ...]:
    """Return the errors of a tensor by place, each relative to the root mean square of the expected rows.

    Args:
        pair: both tensors as rows.
        tokens: layout of the image's tokens.
        image: of a prompt's tensor, the mask of the image's tokens ``[S]``.
        is_of_crops: whether its views are the crops.
    """
    usual = pair.expected.norm(dim=-1).square().mean().sqrt().clamp_min(1e-30)
    errors = (pair.apart.norm(dim=-1) / usual).nan_to_num(torch.inf)
    of_channels = pair.apart.flatten(0, 1).norm(dim=0) / pair.expected.flatten(0, 1).norm(dim=0).mean()
    if pair.grid is not None and errors.shape[1] >= pair.grid[0] * pair.grid[1]:
        planes = errors[:, -pair.grid[0] * pair.grid[1] :].unflatten(1, pair.grid)
        panels = _of_views(planes, tokens.grid if is_of_crops else (1, 1))
    elif image is not None and len(image) == errors.shape[1]:
        panels = [*_of_image(errors[0][image], tokens), *_in_lines("the prompt's other tokens", errors[0][~image])]
    else:
        panels = [*(_in_lines("logits", errors[0]) if pair.noun == LOGIT else _of_image(errors[0], tokens))]
    return (*panels, *_of_channels(of_channels))


def _of_views(planes_Bhw: Tensor, crops: Grid) -> list[ErrorPanel]:
    columns, rows = crops
    most = MOST_ALONE if len(planes_Bhw) == 1 else MOST_OF_SEVERAL
    small = _pooled(planes_Bhw, most)
    if len(small) == columns * rows > 1:
        sheet = small.unflatten(0, (rows, columns)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
        return [_panel(f"{columns} x {rows} crops, as on the page", sheet, columns, rows)]
    titles = ["the page"] if len(small) == 1 else [f"view {k + 1}" for k in range(min(len(small), UNPLACED_VIEWS))]
    return [_panel(title, one) for title, one in zip(titles, small, strict=False)]


def _pooled(planes_Bhw: Tensor, most: int) -> Tensor:
    """Return the root mean square of neighbouring positions, at most ``most`` along a side."""
    size = -(-max(planes_Bhw.shape[1:]) // most)
    return avg_pool2d(planes_Bhw[:, None].square(), size, ceil_mode=True)[:, 0].sqrt() if size > 1 else planes_Bhw


def _of_image(errors_N: Tensor, tokens: ImageTokens) -> Iterator[ErrorPanel]:
    """Yield an image's tokens as they are put into the prompt: its crops, then the page."""
    if len(errors_N) != tokens.count:
        yield from _in_lines("tokens", errors_N)
        return
    (columns, rows), left, layout = tokens.grid, tokens.of_crops, tokens.layout
    ends = "; the last column ends the lines" * layout.newlines
    if left:
        how, stacked = f"{columns} x {rows} crops, as on the page", rows
        if not layout.mosaic:
            how, stacked = f"{columns * rows} crops, one below the other", columns * rows
        yield _panel(how + ends, errors_N[:left].unflatten(0, (-1, tokens.crop_width)), stacked=stacked)
    yield _panel("the page" + ends, errors_N[left:-1].unflatten(0, (-1, tokens.page_width)))


def _in_lines(title: str, errors_N: Tensor) -> Iterator[ErrorPanel]:
    if len(errors_N) > 1:
        yield ErrorPanel(title, tuple(_digits(line) for line in errors_N.split(TOKENS_A_ROW)))


def _of_channels(errors_C: Tensor) -> Iterator[ErrorPanel]:
    if len(errors_C) > 1:
        size = -(-len(errors_C) // MOST_CHANNELS)
        line = _digits([float(one.square().mean().sqrt()) for one in errors_C.split(size)])
        yield ErrorPanel(f"channels 0 to {len(errors_C) - 1}, {size} in each field", (line,))


def _panel(title: str, errors_hw: Tensor, columns: int = 1, stacked: int = 1) -> ErrorPanel:
    return ErrorPanel(title, tuple(_digits(row) for row in errors_hw), columns, stacked)


def _digits(errors: Tensor | Sequence[float]) -> str:
    return "".join(digit(float(one)) for one in errors)
