"""The models that are known: a folder each, which holds what is true of that model and no other."""

from collections.abc import Mapping, Sequence
from importlib import import_module

from pytest_dsocr.families.family import FUSION, Family, Stage, merged

NAMES = ("deepseek_ocr",)
"""The folders; what names no family is of the first."""


FAMILIES: Mapping[str, Family] = {name: import_module(f"{__name__}.{name}").FAMILY for name in NAMES}
DEFAULT = FAMILIES[NAMES[0]]
STAGES: tuple[Stage, ...] = merged(FAMILIES.values())
"""The stages of all families, each once and in order: what has an order for every report."""
STAGE_NAMES = tuple(stage.name for stage in STAGES)
OF_VIEWS = {stage.name: stage.module for stage in STAGES if stage.kind == "view"}
"""The stages that every view goes through, in order, with the vendor's modules."""
VISION = (*OF_VIEWS, FUSION)
SEAMS = tuple(seam for stage in STAGES for seam in stage.seams)
"""The tensors handed on between stages, as they follow from each other."""
VISION_SEAMS = tuple(seam for stage in STAGES if stage.kind in ("view", "fusion") for seam in stage.seams)
PRESET_NAMES = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.presets))
PROMPT_NAMES = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.prompts))


def family_of(architectures: Sequence[str]) -> Family:
    """Return the family that ``architectures`` of a ``config.json`` names; the first where that is none."""
    known = {family.vendor.architecture: family for family in FAMILIES.values()}
    return next((known[one] for one in architectures if one in known), DEFAULT)
