"""Cases to compare: a page, a prompt and a preset, decoded up to a limit of tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.words import plain
from pytest_dsocr.contract.image import load_images
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.models import MODELS, UNMARKED
from pytest_dsocr.models.spec import ModelSpec

if TYPE_CHECKING:
    from pytest_dsocr.records.reference_result import SpanSeen


class PageFaultError(MachineError):
    """A page that is not available: neither the subject nor the reference was called."""


@dataclass(frozen=True)
class Case:
    """A page on disk, its prompt and preset, and the limit of tokens for both sides."""

    page: Path
    """An image file; a folder is several pages of one prompt."""
    prompt: str
    """The text, with its ``<image>``."""
    preset: Preset
    max_new_tokens: int
    family: ModelSpec = field(repr=False)
    """The model that reads the page."""

    @property
    def id(self) -> str:
        """A name for files and reports, such as ``invoice-gundam-markdown``; it can always be printed."""
        name = self.page.name if self.is_several else self.page.stem
        stem = "".join(c if c.isprintable() else "_" for c in name)
        return f"{stem}-{self.preset.name}-{prompt_name(self.prompt, self.family)}"

    @cached_property
    def is_several(self) -> bool:
        """Whether it is several pages in one prompt."""
        return self.page.is_dir()

    @property
    def page_name(self) -> str:
        """The page's file name, as it can be printed and written."""
        return plain(self.page.name)

    @cached_property
    def page_sha256(self) -> str:
        """SHA-256 of the loaded page's size and RGB levels, whatever its file format; of several pages, one for all.

        Raises:
            PageFaultError: if it cannot be loaded.
        """
        try:
            found = load_images(self.page)
        except DsocrError as error:
            raise PageFaultError(str(error)) from None
        made = hashlib.sha256()
        for page in found if isinstance(found, list) else [found]:
            made.update(f"{page.width}x{page.height} ".encode() + page.tobytes())
        return made.hexdigest()

    def spans_in(self, text: str) -> tuple[SpanSeen, ...]:
        """Return the spans in an output's text."""
        from pytest_dsocr.records.reference_result import spans_in  # brings torch

        return spans_in(text, self.family.form, of_pages=self.is_several)

    def to_json(self) -> dict[str, Any]:
        """Return the case as JSON values, its page by name and hash."""
        return {"page": self.page_name, "page_sha256": self.page_sha256, **self.described}

    @property
    def described(self) -> dict[str, Any]:
        """Return the case without its page; the family is named only if it is not the unmarked one."""
        asked = {"prompt": self.prompt, "preset": self.preset.sizes, "max_new_tokens": self.max_new_tokens}
        return asked if self.family.is_unmarked else {**asked, "family": self.family.name}

    @staticmethod
    def model_in(described: Mapping[str, Any]) -> ModelSpec:
        """Return the model of what :attr:`described` returned; raise ``KeyError`` for an unknown one."""
        return MODELS[described.get("family", UNMARKED.name)]

    @classmethod
    def from_json(cls, page: Path, described: Mapping[str, Any]) -> Case:
        """Make the case of ``page`` from what :attr:`described` returned; raise ``KeyError`` for an unknown family."""
        family = cls.model_in(described)
        preset = replace(family.quickest, **described["preset"])
        return cls(page, described["prompt"], preset, described["max_new_tokens"], family)


def make_case(
    page: str | Path, prompt: str, preset: str | Preset, max_new_tokens: int | None = None, *, family: ModelSpec
) -> Case:
    """Make a case from the user's input; ``prompt`` is the name of a prompt of ``family``, or a text.

    Raises:
        DsocrError: if there is no such preset or page, or nothing would be decoded.
    """
    several = bool(family.pages_prompt) and Path(page).is_dir()
    if not several and not Path(page).is_file():
        raise DsocrError(f"there is no page {page}; give an image file")
    if several and family.preset(preset).crop:
        raise DsocrError(f"{page} is several pages in one prompt, and {preset} cuts pages; give another preset")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise DsocrError(f"max_new_tokens={max_new_tokens} leaves nothing to decode; give at least 1")
    ceiling = max_new_tokens or family.decoding.max_new_tokens
    return Case(Path(page), family.prompts.get(prompt, prompt), family.preset(preset), ceiling, family)


def prompt_name(prompt: str, family: ModelSpec) -> str:
    """Return a prompt's name; a text without one gets a name from its hash."""
    names = {text: name for name, text in family.prompts.items()}
    return names.get(prompt.strip()) or f"prompt_{hashlib.sha256(prompt.encode()).hexdigest()[:8]}"
