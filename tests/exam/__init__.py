"""Mistakes that were written without a look at the catalogue, the hints and the suites, to examine these."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from tests.exam.planting import Planted

MODULES = ("of_inputs", "of_vision", "of_decoder", "of_reading")


@cache
def exam() -> Mapping[str, Planted]:
    """Return the mistakes by their ids, in the order of the stages."""
    found = [one for name in MODULES for one in vars(import_module(f"{__name__}.{name}")).values()]
    return {one.id: one for one in found if isinstance(one, Planted)}
