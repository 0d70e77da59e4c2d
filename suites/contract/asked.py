"""Drawn pages, and the inputs that the subject makes from them; each is made once in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.goldens import RECORDINGS, facts_of, shipped_folder

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.records.reference_result import InputsDigest


def own_preset(name: str, base_size: int, image_size: int, crop: bool) -> Preset:
    """Return a preset with sizes that a user chose; :func:`sizes_of` adapts it to a model."""
    return replace(DEEPSEEK_OCR.quickest, name=name, base_size=base_size, image_size=image_size, crop=crop)


OWN_PRESETS = (
    own_preset("own_crops", 768, 640, crop=True),
    own_preset("own_odd", 800, 800, crop=False),
    own_preset("own_small", 400, 400, crop=False),
)
"""Presets with crops and a smaller view of the page, and with sides whose patches do not divide by four."""
OWN_BASE = own_preset("own_base", 1024, 512, crop=False)
"""A preset whose ``base_size`` is the size of no view."""
OWN_PAGES = ("portrait", "landscape")


def recorded(name: str, family: ModelSpec) -> Path:
    """Return the shipped file of that name with results of the vendor's code for ``family``."""
    return facts_of(shipped_folder() / RECORDINGS, family) / name


def sizes_of(preset: str | Preset, family: ModelSpec) -> Preset:
    """Return a preset, or DeepSeek-OCR's of that name, adapted to the way in which ``family`` cuts pages.

    A model that does not take views of any size has another preset: its own of that name, or the one with the nearest
    view.
    """
    if not family.tiling.view_tokens:
        return family.preset(preset if isinstance(preset, Preset) else DEEPSEEK_OCR.presets[preset])
    name = preset if isinstance(preset, str) else preset.name
    like = preset if isinstance(preset, Preset) else DEEPSEEK_OCR.presets.get(preset, family.quickest)
    nearest = min(family.presets.values(), key=lambda own: (own.crop != like.crop, abs(own.view_size - like.view_size)))
    return family.presets.get(name, nearest)


def recorded_presets(family: ModelSpec) -> Mapping[str, Preset]:
    """Return the presets in which every page is recorded, by name: DeepSeek-OCR's if ``family`` takes their views."""
    return family.presets if family.tiling.view_tokens else DEEPSEEK_OCR.presets


@dataclass(frozen=True)
class Drawn:
    """Folder of pages, each drawn when it is first requested."""

    folder: Path

    def __call__(self, name: str) -> Path:
        """Return the file of a page of ``pages.PAGES`` or ``pages.ZERO_SUM_PAGES``."""
        from .pages import write_page

        return next(self.folder.glob(f"{name}.*"), None) or write_page(name, self.folder)

    def blank(self, width_px: int, height_px: int) -> Path:
        """Return the file of a white page."""
        return self._saved(f"{width_px}x{height_px}.png", lambda: Image.new("1", (width_px, height_px), 1))

    def painted(self, columns: int, rows: int) -> Path:
        """Return the file of a page on which each crop of its grid has its own colour."""
        from .pages import painted

        return self._saved(f"painted-{columns}x{rows}.png", lambda: painted(columns, rows))

    def _saved(self, name: str, draw: Callable[[], Image.Image]) -> Path:
        if not (path := self.folder / name).exists():
            draw().save(path, compress_level=1)
        return path


class Asked:
    """Inputs that the subject (L1) makes from pages, kept as digests.

    Args:
        subject: the implementation under test.
        family: its model.
    """

    def __init__(self, subject: Any, family: ModelSpec) -> None:
        self._subject, self.family = subject, family
        self._digests: dict[tuple[Path, str | Preset, str, bool], InputsDigest] = {}
        self._last: tuple[object, Mapping[str, Tensor]] = (None, {})

    def __call__(
        self, page: Path, preset: str | Preset = "gundam", prompt: str = "markdown", *, pixels: bool = True
    ) -> InputsDigest:
        """Return the digest of a page's inputs; without ``pixels``, up to 15 million of them are not hashed."""
        from pytest_dsocr.records.reference_result import InputsDigest

        key = (page, preset, prompt, pixels)
        if key not in self._digests:
            tensors = self.tensors(page, preset, prompt)
            none = {} if pixels else {name: tensors[name][:0] for name in PIXELS}
            self._digests[key] = InputsDigest.of({**tensors, **none})
        return self._digests[key]

    def tensors(self, page: Path, preset: str | Preset = "gundam", prompt: str = "markdown") -> Mapping[str, Tensor]:
        """Return the inputs of a page, and keep those of the last one."""
        from pytest_dsocr.subjects.checked import CheckedSubject

        if self._last[0] != (asked := (page, preset, prompt)):
            case = make_case(page, prompt, sizes_of(preset, self.family), family=self.family)
            self._last = asked, CheckedSubject(self._subject).inputs(case)
        return self._last[1]
