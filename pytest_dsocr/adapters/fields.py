"""What an adapter fills in for each page: ``{page}`` and the others, in a command or a prompt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.reading import Format, toml
from pytest_dsocr.subjects.protocol import Setup

OPTIONS = Format(dict[str, Any], "give a TOML file", parse=toml, most_bytes=2**20)
FIELD = re.compile(r"\{([a-z_]+)\}")
OF_SETUP = ("checkpoint", "device", "dtype", "attention")
OF_PAGE = ("page", "prompt", "text", "preset", "base_size", "image_size", "crop", "max_new_tokens")
"""``text`` is the prompt without its ``<image>``, for an implementation that puts the image in place itself."""
TOML = ".toml"
MOST_BYTES = 16 * 2**20
"""Of one answer: the longest output that the model can give takes less than a hundredth."""

Values = Mapping[str, Any]
Types = Mapping[str, type | tuple[type, ...]]


OFFERS: Types = {"presets": list, "prompts": list}
"""Options of every adapter: the names of the presets and prompts that are offered."""


def of_setup(setup: Setup) -> Values:
    """Return the values of a run."""
    return {name: value for name, value in asdict(setup).items() if name in OF_SETUP}


def of_page(page: Path, prompt: str, preset: Preset, max_new_tokens: int) -> Values:
    """Return the values of a page, as JSON can hold them."""
    text = prompt.replace(IMAGE, "").strip()
    sizes = {"preset": preset.name, "base_size": preset.base_size, "image_size": preset.image_size, "crop": preset.crop}
    return {"page": str(page), "prompt": prompt, "text": text, **sizes, "max_new_tokens": max_new_tokens}


def filled(template: str, values: Values) -> str:
    """Fill a template in; braces around anything but the name of a field stay as they are."""

    def value(found: re.Match[str]) -> str:
        given = values[found[1]]
        return str(given).lower() if isinstance(given, bool) else str(given)

    return FIELD.sub(value, template)


def check_fields(templates: Collection[str], valid: Collection[str]) -> set[str]:
    """Return the fields that are named; raise ``DsocrError`` where there is none of that name."""
    named = {name for template in templates for name in FIELD.findall(template)}
    if unknown := sorted(named.difference(valid)):
        raise DsocrError(f"there is no field {{{unknown[0]}}}; the fields are {', '.join(map(_braced, valid))}")
    return named


def read_toml(path: Path, valid: Types) -> dict[str, Any]:
    """Read an adapter's options from a file; ``valid`` gives each option's type.

    Raises:
        DsocrError: where it cannot be read, or holds what is no option.
    """
    given = OPTIONS.read(path)
    for complaint in _complaints(given, valid):
        raise DsocrError(f"{path}: {complaint}")
    return given


def _complaints(given: Values, valid: Types) -> Iterator[str]:
    for name, value in given.items():
        if name not in valid:
            yield f"there is no option {name}; the options are {', '.join(valid)}"
        elif not isinstance(value, valid[name]):
            yield f"{name} cannot be of type {type(value).__name__}"


def _braced(name: str) -> str:
    return f"{{{name}}}"
