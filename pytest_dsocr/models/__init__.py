"""The known models: a folder for each, with what is true of that model only.

Another package adds a model by the entry-point group ``dsocr.models``: a name, and ``package.module:FAMILY``.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.spec import FUSION, ModelSpec, Stage, merged

NAMES = ("deepseek_ocr", "unlimited_ocr", "deepseek_ocr2")
"""The folders."""
GROUP = "dsocr.models"


def _found() -> Mapping[str, ModelSpec]:
    own = {name: import_module(f"{__name__}.{name}").FAMILY for name in NAMES}
    return own | {point.name: point.load() for point in entry_points(group=GROUP) if point.name not in own}


MODELS: Mapping[str, ModelSpec] = _found()
OF_CLASS = {family.vendor.architecture: family for family in MODELS.values()}
"""The models by their vendor's class."""
UNMARKED = next(family for family in MODELS.values() if family.is_unmarked)
"""The model of every recorded case that names none."""
STAGES: tuple[Stage, ...] = merged(MODELS.values())
"""The stages of all models, each once and in order: every report has this order."""
STAGE_NAMES = tuple(stage.name for stage in STAGES)
OF_VIEWS = {stage.name: stage.module for stage in STAGES if stage.kind == "view"}
"""The stages of every view, in order, with the vendor's modules."""
VISION = (*OF_VIEWS, FUSION)
SEAMS = tuple(seam for stage in STAGES for seam in stage.seams)
"""The tensors handed on between stages, as they follow from each other."""
VISION_SEAMS = tuple(seam for stage in STAGES if stage.kind in ("view", "fusion") for seam in stage.seams)
PRESET_NAMES = tuple(dict.fromkeys(name for family in MODELS.values() for name in family.presets))
PROMPT_NAMES = tuple(dict.fromkeys(name for family in MODELS.values() for name in family.prompts))


def model_of_class(kind: type) -> ModelSpec:
    """Return the model of the vendor's class, or of a class that derives from it.

    Raises:
        DsocrError: if it is the class of no known model.
    """
    found = next((OF_CLASS[one.__name__] for one in kind.__mro__ if one.__name__ in OF_CLASS), None)
    if found is None:
        raise DsocrError(
            f"{kind.__name__} is not a vendor's class ({', '.join(OF_CLASS)}); "
            "pass the object that AutoModel.from_pretrained(..., trust_remote_code=True) gives"
        )
    return found


def model_of(architectures: Sequence[str], vision: str = "") -> ModelSpec:
    """Return the model that ``architectures`` of a ``config.json`` names.

    Args:
        architectures: names of the vendor's classes.
        vision: ``model_name`` of ``vision_config``, which decides if there is no class and one model alone has it.

    Raises:
        DsocrError: if it names no known model, or two.
    """
    by_vision = [family for family in MODELS.values() if family.vendor.published["vision"]["model_name"] == vision]
    for one in architectures:
        if (found := OF_CLASS.get(one)) and by_vision and found not in by_vision:
            others = " or ".join(family.title for family in by_vision)
            raise DsocrError(
                f"config.json has the architecture of {found.title} ({one}) and the vision_config of {others} "
                f"({vision}); give the config.json that belongs to the weights"
            )
        if found:
            return found
    if not architectures and len(by_vision) == 1:
        return by_vision[0]
    named = f"the architecture {', '.join(architectures)}" if architectures else "a config.json without architectures"
    raise DsocrError(
        f"{named} is of no model that is known ({', '.join(OF_CLASS)}); if it is one of them under another name, "
        f"say which: --dsocr-model={'|'.join(MODELS)}"
    )
