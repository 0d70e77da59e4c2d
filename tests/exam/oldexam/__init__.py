"""Mistakes that were written without a look at the catalogue, the hints and the suites, to examine these."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from oldexam.planting import Planted

IDS = {"first": "HLD", "sealed": "NEW"}
"""How the ids of a set begin."""
SETS: Mapping[str, tuple[str, ...]] = {
    "first": ("of_pages", "of_prompts", "of_vision", "of_fusion", "of_decoder", "of_cache", "of_reading"),
    "sealed": ("of_inputs", "of_vision", "of_decoder", "of_reading"),
}
"""The modules of each set, in the order of the stages. What was found of the first one was seen as checks were mended;
what was found of the sealed one was not."""


@cache
def exam(name: str) -> Mapping[str, Planted]:
    """Return the mistakes of a set by their ids."""
    modules = [import_module(f"{__name__}.{name}.{module}") for module in SETS[name]]
    own = [one for module in modules for one in vars(module).values() if isinstance(one, Planted)]
    return {one.id: one for one in own if one.id.startswith(IDS[name])}
