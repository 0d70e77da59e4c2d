"""Fields that an adapter fills in for each page of a command or a prompt: ``{page}`` and others."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.reading import Format, toml
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.subjects.protocol import Offers, Setup

FIELD = re.compile(r"\{([a-z_]+)\}")
OF_SETUP = tuple(field.name for field in fields(Setup))
OF_PAGE = ("page", "prompt", "text", "unstripped", "preset", "base_size", "image_size", "crop", "max_new_tokens")
"""``text`` is the prompt without its ``<image>``, for an implementation that puts the image in place itself;
``unstripped`` keeps the newline that follows the image in some prompts."""
TOML = ".toml"
MOST_BYTES = 16 * 2**20
"""Largest size of one answer: the longest output of the model takes less than a hundredth of it."""

FieldValues = Mapping[str, Any]


def of_page(page: Path | str, prompt: str, preset: Preset, max_new_tokens: int) -> FieldValues:
    """Return the values of a page, in JSON types."""
    text = prompt.replace(IMAGE, "")
    sizes = {"preset": preset.name, "base_size": preset.base_size, "image_size": preset.image_size, "crop": preset.crop}
    texts = {"prompt": prompt, "text": text.strip(), "unstripped": text}
    return {"page": str(page), **texts, **sizes, "max_new_tokens": max_new_tokens}


T = TypeVar("T")


PositiveSeconds = Annotated[float, Meta(gt=0)]


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that every adapter takes, from its name or from a file."""

    time_limit: PositiveSeconds = inf
    """Seconds for one page."""
    presets: Sequence[str] | None = None
    """Presets that it offers; None means all, also for prompts."""
    prompts: Sequence[str] | None = None


def read_options(kind: type[T], rest: str, typed: Callable[[], dict[str, Any]]) -> T:
    """Read an adapter's options from the TOML file that ``rest`` names, or from the text itself.

    Raises:
        DsocrError: if a file cannot be read, an option is unknown or of another type, or a preset has another name.
    """
    form = Format(kind, "docs/adapters.md has every option", parse=toml, most_bytes=2**20)
    is_file = rest.endswith(TOML) and " " not in rest and not rest.startswith("//")
    found = form.read(rest) if is_file else form.convert(typed(), rest)
    Offers.of(found)
    return found


def filled(template: str, values: FieldValues) -> str:
    """Fill a template in; braces around anything but the name of a field stay as they are."""

    def value(found: re.Match[str]) -> str:
        given = values[found[1]]
        return str(given).lower() if isinstance(given, bool) else str(given)

    return FIELD.sub(value, template)


def check_fields(templates: Collection[str], valid: Collection[str]) -> set[str]:
    """Return the fields that are named; raise ``DsocrError`` if a name is not valid."""
    named = {name for template in templates for name in FIELD.findall(template)}
    if unknown := sorted(named.difference(valid)):
        raise DsocrError(f"there is no field {{{unknown[0]}}}; the fields are {{{'}, {'.join(valid)}}}")
    return named
