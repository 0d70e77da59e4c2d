"""The resolutions that the model's card names, and custom ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_dsocr.foundation.errors import DsocrError

PATCH_PX = 16
"""Side of the square of pixels that SAM turns into one patch; a view must hold at least one."""
SQUASHED_UP_TO_PX = 640


@dataclass(frozen=True)
class Preset:
    """Sizes in pixels, under the names of the vendor's ``infer``, and whether large pages are cut into crops.

    With ``crop`` the whole page is seen at ``base_size``, and ``image_size`` counts the tokens of a crop, which is
    640 px wide whatever ``image_size`` says. Without it the whole page is seen at ``image_size``.
    """

    name: str
    base_size: int
    image_size: int
    crop: bool

    def __post_init__(self) -> None:
        for size_name, size_px in (("base_size", self.base_size), ("image_size", self.image_size)):
            if size_px < PATCH_PX:
                raise DsocrError(
                    f"preset {self.name!r} has {size_name}={size_px}, which holds no image token; "
                    f"give at least {PATCH_PX} pixels"
                )

    @property
    def is_squashed(self) -> bool:
        """Whether the whole page is squashed into its view, and not padded: without crops, at up to 640 px."""
        return not self.crop and self.view_size <= SQUASHED_UP_TO_PX

    @property
    def view_size(self) -> int:
        """Side of the square view of the whole page, in pixels."""
        return self.base_size if self.crop else self.image_size


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("tiny", 512, 512, crop=False),
        Preset("small", 640, 640, crop=False),
        Preset("base", 1024, 1024, crop=False),
        Preset("large", 1280, 1280, crop=False),
        Preset("gundam", 1024, 640, crop=True),
    )
}


def get_preset(name_or_preset: str | Preset) -> Preset:
    """Give the preset of that name, whatever its case; a ``Preset`` is given back as it is.

    Raises:
        DsocrError: where there is none of that name.
    """
    if isinstance(name_or_preset, Preset):
        return name_or_preset
    try:
        return PRESETS[name_or_preset.lower()]
    except KeyError:
        raise DsocrError(
            f"there is no preset {name_or_preset!r}; give one of {', '.join(PRESETS)}, or a Preset of your own"
        ) from None
