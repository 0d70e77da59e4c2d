"""Facts of one model, as one value that everything else derives from; light to import.

Parts that need torch are named as ``module:name``, and :func:`load` imports them when they are used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pytest_dsocr.contract import StageWatch
from pytest_dsocr.contract.markup import OutputForm
from pytest_dsocr.contract.policy import CachePolicy, DecodePolicy
from pytest_dsocr.contract.presets import Layout, Preset, Tiling, check_view, get_preset, image_token_count
from pytest_dsocr.contract.prompt import SpecialTokens, TextTokenizer
from pytest_dsocr.layers.sizes import DecoderConfig

if TYPE_CHECKING:
    import torch

    from pytest_dsocr.contract.image import ImageSource
    from pytest_dsocr.contract.inputs import Inputs

StageKind = Literal["host", "view", "fusion", "prompt", "step"]
"""Scope of a stage: ``host``, outside of the model; each ``view`` of a page; all views (``fusion``); the ``prompt``;
and each ``step`` of decoding."""
PREPROCESS, TOKENIZER = "preprocess", "tokenizer"
FUSION, PREFILL, DECODE = "vision_fusion", "prefill", "decode"
"""Stages that every family has: the image's tokens, the decoder on the prompt, the decoder on each new token."""
VIEWS = ("crops", "page")
PIXELS = "pixels"
"""Name of the input of the views' first stage."""


@dataclass(frozen=True)
class Stage:
    """A stage of the model, with the same name in ranges, times, seams, costs and reports."""

    name: str
    kind: StageKind
    module: str = ""
    """Vendor's module that computes it, such as ``model.sam_model``; empty if it is not one module's work."""
    blocks: str = ""
    """The vendor's list of its numbered blocks, such as ``model.sam_model.blocks``."""
    takes: tuple[str, ...] = ()
    """Stages whose features a view's stage takes, or :data:`PIXELS`."""
    attention: str = ""
    """Attention of the stage, if the user's choice does not affect it."""
    title: str = ""
    """Name in words and in tables."""

    @property
    def seams(self) -> tuple[str, ...]:
        """The tensors that it hands on."""
        if self.kind == "view":
            return tuple(f"{self.name}.{view}" for view in VIEWS)
        return (self.name,) if self.kind in ("fusion", "prompt") else ()


class EncoderSizes(Protocol):
    """Sizes of a model's vision encoder, which msgspec reads from the ``vision_config`` of a ``config.json``."""

    @classmethod
    def published(cls) -> Self:
        """Return the published sizes."""

    @property
    def patch_px(self) -> int:
        """Side of the square of pixels that becomes one patch."""

    @property
    def projector_input(self) -> int:
        """Channels of a vision token before the projector."""

    @property
    def rules(self) -> Mapping[str, bool]:
        """Rules that the sizes must keep, each with whether it holds."""

    def to_config(self) -> dict[str, Any]:
        """Return ``vision_config`` as the vendor's code reads it."""


@dataclass(frozen=True)
class PageTokens:
    """Numbers of an image's tokens that show the page, as the vendor counts them; it does not count other sizes."""

    of_page: Mapping[int, int]
    """Tokens of a padded page by ``base_size``; only the part without padding counts."""
    of_squashed: Mapping[int, int]
    """Tokens of a page that is squashed into its view, without padding; pages with crops have none."""
    of_crop: int


@dataclass(frozen=True)
class Vendor:
    """The vendor's Python code and files, and the places where the code is hooked."""

    architecture: str
    """Name of its class, as in ``architectures`` of a checkpoint's ``config.json``."""
    files: tuple[str, ...]
    """Names of its files, the one with the class first; their sums are in an ``anchors.json`` in ``golden/vendor``."""
    contract: Mapping[str, tuple[str, ...]]
    """Sources of the contract by stage: functions, classes, methods and tables, in whichever file they are."""
    page_tokens: PageTokens
    model: str
    """Subclass of :class:`pytest_dsocr.engine.vendor_model.VendorModel` that runs the stages of the vendor's model
    object, ``module:name``."""
    builders: str
    """Builders of the vendor's encoder in other sizes, ``module:name``: see
    :func:`pytest_dsocr.models.deepseek_ocr.vendor.builders`."""
    built: str
    """Description of the parts that ``builders`` replaces."""
    published: Mapping[str, Mapping[str, Any]]
    """Values of the published ``config.json`` other than sizes: for the ``whole`` file, ``vision``, ``projector``,
    ``language``, the ``decoder`` (which both ``language`` and the whole contain), and the ``processor``."""


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A model: what its vendor's code does that no other's does."""

    name: str
    title: str
    stages: tuple[Stage, ...]
    """In the order of the data."""
    presets: Mapping[str, Preset]
    """Presets by name; each has the family's tiling and its layout of tokens."""
    default_preset: str
    prompts: Mapping[str, str]
    """The model card's prompts that have no fields to fill in."""
    newline: str
    """The vendor's parameter that ends each row of an image's tokens; unused if the layout has no newlines."""
    separator: str
    """The vendor's parameter that ends an image."""
    special: SpecialTokens
    vocab_size: int
    prompt_ids: Mapping[str, tuple[int, ...]]
    """Ids of the prompts' texts without their images, in the published vocabulary."""
    decoding: DecodePolicy
    """Rules by which the vendor's ``infer`` decodes."""
    cache: CachePolicy
    vendor: Vendor
    encoder: type[EncoderSizes]
    """Sizes of its encoder."""
    model: str
    """The engine's model of it, ``module:name``: a subclass of :class:`pytest_dsocr.engine.model.EngineModel`, with a
    method for each view's stage."""
    fast_model: str
    """Model with fast decode steps; empty if there is none."""
    cost: str
    """Cost of its views' stages: a module with ``vision`` and ``parameters``, as
    :mod:`pytest_dsocr.models.deepseek_ocr.cost` has them."""
    mistakes: str
    """Known mistakes of its encoder, ``module:name``: a function that returns a group for each stage."""
    form: OutputForm
    """Form of its markup, and the file that an output becomes."""
    pages_prompt: str = ""
    """The name of its prompt for several pages, as ``infer_multi`` reads them: a list of images, or a folder, is then
    at one ``<image>``, and none is cut. Without one, each image has its own ``<image>``."""
    embedded: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the checkpoints that are shipped with it, by name."""
    synthetic: Mapping[str, tuple[EncoderSizes, DecoderConfig]] = field(default_factory=dict)
    """Sizes of the checkpoints of random weights, ``synthetic:NAME``, by name."""
    based_on: ModelSpec | None = None
    """The model whose ports are changed into ports of this one. Those may keep its mistakes."""
    ports: Path | None = None
    """File that lists where each of its mistakes was seen; see :mod:`pytest_dsocr.explain.catalogue`."""
    is_unmarked: bool = False
    """Whether its cases, recordings and fingerprints do not name the model. They are older than the second model, so
    one model alone may be unmarked."""

    @cached_property
    def stage(self) -> Mapping[str, Stage]:
        """The stages by name."""
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def lineage(self) -> tuple[str, ...]:
        """Names of the model and of the models that it is based on."""
        return (self.name, *(self.based_on.lineage if self.based_on else ()))

    @property
    def vectors(self) -> tuple[str, ...]:
        """The vendor's parameters that appear among an image's tokens."""
        return (self.newline, self.separator) if self.layout.newlines else (self.separator,)

    @cached_property
    def of_views(self) -> tuple[Stage, ...]:
        """The stages of every view, in order; the last one's features are laid out in the prompt."""
        return tuple(stage for stage in self.stages if stage.kind == "view")

    @cached_property
    def vision_seams(self) -> tuple[str, ...]:
        """The tensors that vision returns, in order; those of crops only of a page that has some."""
        return tuple(seam for stage in self.stages if stage.kind in ("view", "fusion") for seam in stage.seams)

    def with_ring(self, ring: int | None) -> ModelSpec:
        """Return the family for a checkpoint whose config sets its own ring; None leaves it unchanged."""
        own = ring is None or self.cache.ring in (None, ring)
        return self if own else replace(self, cache=replace(self.cache, ring=ring))

    @property
    def a_prompt(self) -> str:
        """The text of the first prompt."""
        return next(iter(self.prompts.values()))

    @property
    def quickest(self) -> Preset:
        """The preset with the smallest view, and without crops."""
        return min((one for one in self.presets.values() if not one.crop), key=lambda one: one.view_size)

    @property
    def tiling(self) -> Tiling:
        """Rules by which it cuts pages."""
        return self.presets[self.default_preset].tiling

    @property
    def layout(self) -> Layout:
        """Order of an image's tokens."""
        return self.presets[self.default_preset].layout

    def preset(self, name: str | Preset) -> Preset:
        """Return the preset with a name, in any case; for a ``Preset``, its sizes with the family's tiling.

        Raises:
            DsocrError: if there is none with that name, or the encoder does not take its view of the page.
        """
        found, own = get_preset(name, self.presets), (self.tiling, self.layout)
        adapted = found if (found.tiling, found.layout) == own else replace(found, tiling=own[0], layout=own[1])
        return check_view(adapted)

    def drops_surplus(self, inputs: Inputs) -> bool:
        """Return whether a prompt has the image tokens of the vendor's lossy ``image_size``; see :class:`Tiling`."""
        if self.tiling.lossy_px is None:
            return False
        base_px, own = inputs.images_ori.shape[-1], self.presets[self.default_preset]
        preset = replace(own, base_size=base_px, image_size=self.tiling.lossy_px)
        grids = [(columns, rows) for columns, rows in inputs.images_spatial_crop.tolist()]
        return inputs.image_tokens == sum(image_token_count(preset, grid) for grid in grids)

    def prepare(
        self,
        images: ImageSource | Sequence[ImageSource],
        prompt: str,
        preset: str | Preset,
        tokenizer: TextTokenizer,
        stages: StageWatch = nullcontext,  # type: ignore[assignment]
        device: torch.device | str = "cpu",
    ) -> Inputs:
        """Make the inputs of ``prompt``, a name or a text; see :func:`pytest_dsocr.contract.inputs.prepare_inputs`."""
        from pytest_dsocr.contract.inputs import prepare_inputs

        text, sizes = self.prompts.get(prompt, prompt), self.preset(preset)
        together = bool(self.pages_prompt)
        return prepare_inputs(images, text, sizes, tokenizer, stages, at_one_place=together, device=device)


def merged(families: Iterable[ModelSpec]) -> tuple[Stage, ...]:
    """Return the stages of all families, each once, so that each family's own are in its order."""
    found: list[Stage] = []
    for family in families:
        place = 0
        for stage in family.stages:
            names = [one.name for one in found]
            place = names.index(stage.name) if stage.name in names else place
            if stage.name not in names:
                found.insert(place, stage)
            place += 1
    return tuple(found)


def load(where: str) -> Any:
    """Import the module or the value that ``module:name`` names."""
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
