"""SAM of the fast engine against the readable one, and its attention in Triton against that in plain torch."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from pytest_dsocr.layers.fast import sam as fast
from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.layers.sizes import SamConfig

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16
"""Triton's interpreter multiplies no matrices of bf16."""
LIMITS = {torch.float32: 2e-6, HALF: 0.02}
SMALL = SamConfig(
    width=24, layers=2, heads=2, global_attn_indexes=(1,), downsample_channels=(8, 16), image_size=160, neck_channels=8
)
WINDOWS = {
    "the whole view": (2, 9, 9),
    "a wide view": (1, 17, 17),
    "windows that fill it": (1, 16, 8),
    "windows with padding": (2, 10, 14),
    "more windows, more padding": (1, 17, 7),
}
"""Views, patches a side of them, patches a side of what attends."""


def drawn(module: torch.nn.Module) -> None:
    torch.manual_seed(0)
    for weight in module.requires_grad_(False).parameters():
        weight.normal_(std=0.3)


def asked(views: int, height: int, side: int, dtype: torch.dtype, heads: int = 2) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return joined queries, keys and values, those of padding, offsets, and heads of 12 channels."""
    torch.manual_seed(1)
    length = 2 * (2 * side - 1)
    offsets = torch.nn.functional.pad(torch.randn(length, 12), (0, 0, 0, -length % fast.ALIGNED))
    given = (torch.randn(views, height, height, 3 * heads * 12), torch.randn(3 * heads * 12), offsets)
    qkv, padding, table = (tensor.to(DEVICE, dtype) for tensor in given)
    return qkv, padding, table, heads


@pytest.mark.parametrize("side_px", [160, 96, 272], ids=["as the tables are", "smaller", "larger, of several windows"])
def test_features_are_those_of_the_readable_encoder(side_px: int) -> None:
    sam = Sam(SMALL)
    drawn(sam)
    pixels = torch.randn(2, 3, side_px, side_px)
    found = fast.encode(sam, pixels, fast.Tables.of(sam, side_px // SMALL.patch_size), fast.attend)
    torch.testing.assert_close(found, sam(pixels), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def kernel() -> Iterator[fast.Attend]:
    with pytest.MonkeyPatch.context() as patch:
        from pytest_dsocr.layers.fast import sam_fused

        if not ON_GPU:  # an interpreter takes its time for each program; a row of the wide view is a block of keys
            patch.setattr(sam_fused, "WHOLE", sam_fused.LaunchBlock(512, 32, 4, 2))
        yield sam_fused.attend


@pytest.mark.skipif(
    not find_spec("triton"), reason="needs the triton package: on Linux, pip install triton; a GPU is not needed"
)
@pytest.mark.parametrize("dtype", LIMITS, ids=["float32", "half"])
@pytest.mark.parametrize(("views", "height", "side"), WINDOWS.values(), ids=WINDOWS)
def test_kernel(kernel: fast.Attend, views: int, height: int, side: int, dtype: torch.dtype) -> None:
    given = asked(views, height, side, dtype)
    found, expected = kernel(*given, side), fast.attend(*given, side)
    assert (found.shape, found.dtype) == (expected.shape, dtype)
    assert (found - expected).norm() / expected.norm() < LIMITS[dtype]
