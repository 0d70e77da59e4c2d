"""The models that are known: a folder each, which holds what is true of that model and no other."""

from collections.abc import Mapping, Sequence
from importlib import import_module

from pytest_dsocr.families.family import FUSION, Family, Stage, merged
from pytest_dsocr.foundation.errors import DsocrError

NAMES = ("deepseek_ocr", "unlimited_ocr")
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


def family_of_class(kind: type) -> Family:
    """Return the family of the vendor's class, or of one that derives from it; the first where it is neither."""
    names = {one.__name__ for one in kind.__mro__}
    return next((family for family in FAMILIES.values() if family.vendor.architecture in names), DEFAULT)


def family_of(architectures: Sequence[str]) -> Family:
    """Return the family that ``architectures`` of a ``config.json`` names; the first where it names none.

    Raises:
        DsocrError: where it names another model.
    """
    known = {family.vendor.architecture: family for family in FAMILIES.values()}
    found = next((known[one] for one in architectures if one in known), None if architectures else DEFAULT)
    if found is None:
        raise DsocrError(
            f"the architecture {', '.join(architectures)} is of no model that is known ({', '.join(known)}); where it "
            f"is one of them under another name, say which: --dsocr-model={'|'.join(NAMES)}"
        )
    return found
