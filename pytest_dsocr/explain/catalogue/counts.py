"""Other rules for the number of an image's tokens in the prompt."""

from collections.abc import Callable

from pytest_dsocr.contract import inputs, presets
from pytest_dsocr.contract.presets import Grid, Layout, Preset, crop_count
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.models.spec import ModelSpec

Counted = Callable[[Preset, Grid], int]

TokenCounter = Callable[[int, Grid], int]
"""Count the tokens of the page, or of the crops, from a side in tokens and a grid."""


def token_counts(family: ModelSpec) -> dict[str, tuple[str, Counted]]:
    """Return other rules for the number of an image's tokens than those of a family's layout."""
    own = family.layout

    def page(side: int, grid: Grid) -> int:
        return own.page_tokens(side)

    crops = own.crop_tokens

    def total(
        page: TokenCounter = page, crops: TokenCounter = crops, page_px: str = "view_size", crop_px: str | int = ""
    ) -> Counted:
        """Count by other rules than the vendor's, or by other sizes of a preset."""

        def count(preset: Preset, grid: Grid) -> int:
            crop = crop_px if isinstance(crop_px, int) else getattr(preset, crop_px or "image_size")
            of_page = page(presets.tokens_per_side(getattr(preset, page_px)), grid)
            return of_page + (crops(presets.tokens_per_side(crop), grid) if crop_count(grid) else 0)

        return count

    def one_crop(preset: Preset, grid: Grid) -> int:
        side = presets.tokens_per_side(preset.image_size)
        return total()(preset, grid) + (0 if crop_count(grid) else side * (side + own.newlines))

    def separators(side: int, grid: Grid) -> int:
        return (side * (side + own.newlines) + 1) * crop_count(grid)

    found: dict[str, tuple[str, Counted]] = {
        "no-separator": ("no token counted for the separator", total(page=lambda s, g: own.page_tokens(s) - 1)),
        "crop-separators": ("a separator counted for each crop", total(crops=separators)),
        "two-separators": ("a separator counted behind the crops as well", total(crops=lambda s, g: crops(s, g) + 1)),
        "no-crops": ("no tokens counted for the crops", total(crops=lambda s, g: 0)),
        "no-page": ("no tokens counted for the whole page", total(page=lambda s, g: 1)),
        "base-crops": ("the crops' tokens counted by the page's size", total(crop_px="base_size")),
        "one": ("one token for the whole image", lambda preset, grid: 1),
        "one-crop": ("one crop counted among those of a page that is not cut", one_crop),
        "base-page": ("the page's tokens counted by image_size in place of base_size", total(page_px="image_size")),
    }
    without, ended = Layout(newlines=False, mosaic=False), Layout(newlines=True, mosaic=True)
    other, which = (without, "no tokens") if own.newlines else (ended, "tokens")
    found |= {
        f"{'no-' * own.newlines}newlines": (
            f"{which} counted for newlines",
            total(page=lambda s, g: other.page_tokens(s), crops=other.crop_tokens),
        ),
        f"{'no-' * own.newlines}page-newlines": (
            f"{which} counted for the page's newlines",
            total(page=lambda s, g: other.page_tokens(s)),
        ),
        f"{'no-' * own.newlines}crop-newlines": (
            f"{which} counted for the crops' newlines",
            total(crops=other.crop_tokens),
        ),
        "each-crop": (
            "newlines counted for each crop by itself",
            total(crops=lambda s, g: s * (s + 1) * crop_count(g)),
        ),
    }
    if own.newlines:
        exchanged = total(crops=lambda s, g: crops(s, (g[1], g[0])))
        found["exchanged"] = ("newlines counted by columns, not by rows", exchanged)
    if (lossy := family.tiling.lossy_px) is not None:
        words = f"the crops' tokens counted for {lossy} px, the default of the vendor's infer"
        found[f"{lossy}"] = (words, total(crop_px=lossy))
    return found


def plant_count(on: Target, count: Counted) -> None:
    """Replace the rule for the number of an image's tokens."""
    on.changes.set(inputs, "image_token_count", count)
    on.changes.set(inputs, "check_inputs", lambda *_: None)
