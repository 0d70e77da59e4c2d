"""The protocol of a subject, level by level: from one method that returns text to named modules.

These rules hold for every method:

- The caller copies the result before it calls the subject again. Buffers may be reused, as CUDA graphs do. On a GPU, a
  result must be ready on the current stream when the method returns.
- A method may overwrite its arguments. After it returns, the caller may overwrite them too. A state that needs the
  pixels or the features later keeps a copy.
- Results are read as builtin types and plain tensors. Methods that a subclass overrides are not called. A tensor is
  dense, holds real numbers, and has values: it is not on the device ``meta``.
- Raise ``NotOfferedError`` for a page that the subject does not support. It is reported as not offered, never as a
  pass.
- Any other exception ends the case. Earlier results are compared. A test of a later stage is an error that names the
  failed stage, never a verdict.
- NaN and infinity are values. Return them instead of raising.

Importing this module does not import torch, because a subject's level is known before its weights are loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import listed
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.protocol import CacheView
from pytest_dsocr.models import MODELS, PRESET_NAMES, PROMPT_NAMES
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.config import NotOfferedError as NotOfferedError
from pytest_dsocr.records.config import Setup as Setup

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pytest_dsocr.records.case import Case

METHODS: Mapping[Level, tuple[str, ...]] = {
    Level.TEXT: ("read",),
    Level.INPUTS: ("inputs",),
    Level.STAGES: ("vision", "prefill", "step"),
    Level.MODULES: ("module",),
}
"""Methods that each level adds to those of the lower levels."""
DECODER = "prefill and step"
PARTS: Mapping[str, tuple[str, ...]] = {
    "inputs": ("inputs",),
    "vision": ("vision",),
    **{stage.name: (stage.name,) for family in MODELS.values() for stage in family.of_views},
    DECODER: ("prefill", "step"),
}
"""Parts of an implementation that are subjects without ``read``, each with its methods.

A stage of the encoder, such as ``projector``, is a method that takes the stage's input and returns its features.
:class:`StagedSubject` describes the other methods.
"""


class DecodeView(Protocol):
    """State of decoding: ``prefill`` returns it, and each ``step`` moves it on.

    It may have ``chosen``, the tokens that the subject chooses, if they are known in advance. They are compared too.
    """

    @property
    def logits(self) -> Tensor:
        """Logits of the next token, ``[V]`` or ``[1, V]``, which are read when ``prefill`` returns."""

    @property
    def cache(self) -> CacheView:
        """The key-value cache."""


class TextSubject(Protocol):
    """L0: a page in, text out.

    A subject of any level may also have these members.

    It describes itself:

    - ``dtype``: the dtype of its computation, such as ``bfloat16``; by default the run's ``--dsocr-dtype``.
    - ``dtypes``: further dtypes that its factory accepts as ``Setup.dtype``, such as ``("bfloat16",)``. They must round
      where the vendor's code rounds. A default run then tests one page in bfloat16.
    - ``precision``: ``int8``, ``fp8`` or ``int4``, if weights, activations or cache have fewer bits than ``dtype``. The
      subject is then judged by a budget, see ``--dsocr-quantization-budget``.
    - ``presets``, ``prompts``: names of those that it offers, such as ``("gundam",)``; by default all. Others are
      reported as not offered.

    It has set these attributes when a method returns:

    - ``first_token_ms``, after ``read``: milliseconds from the request to the first text, if the subject streams.
    - ``ended_by``, after ``read``: the reason for the end, such as ``length`` for a limit of tokens.
    - ``not_offered``, after ``inputs``: names that are not its own work, such as ``input_ids`` or ``dtypes``. It
      includes ``vision_fusion`` if the subject has none. They are not compared.

    It has further methods:

    - ``announce(page, *, prompt, preset, max_new_tokens, token_ids)``: called before ``inputs`` with the reference's
      tokens, if the subject must know in advance along which tokens it will be stepped.
    - ``read_many(pages, *, prompt, preset, max_new_tokens)``: read several image files as a batch, or as requests open
      at the same time. Return their texts in the order of ``pages``. A text does not depend on the other pages.
    - ``write(text, page, folder)``: write ``result.mmd`` and the other files that the vendor writes.
    - ``close()``: called when the run is over.
    """

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end.

        Args:
            page: an image file, or a folder with several pages of one prompt, if the model reads several.
            prompt: the text with its ``<image>``.
            preset: sizes of the page and its crops.
            max_new_tokens: limit of the output.

        Returns:
            The decoded output with its markup (``<|ref|>``, ``<|det|>``), without the EOS. White space at both ends is
            not compared, because the vendor strips it.
        """


class InputsSubject(TextSubject, Protocol):
    """L1: the inputs of the model as well."""

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> Mapping[str, Tensor]:
        """Return the model's inputs, with the names and shapes of the fields of ``contract.inputs.Inputs``."""


class StagedSubject(InputsSubject, Protocol):
    """L2: vision, prefill and each decode step are separate calls, and the cache is visible.

    A staged subject may also have these members:

    - ``seams``: names of tensors that ``vision`` returns besides ``vision_fusion``. It must return each of them.
    - ``watched(stages)``: a context in which the subject enters ``stages(name)`` around its stages, or some of them.
      Then ``preprocess`` is timed without the rest of ``inputs``, and ``vision_fusion`` without ``prefill``.
    - ``policy``: a ``contract.policy.DecodePolicy`` that says how tokens are chosen; by default the vendor's.
    - ``text_of(token_ids)``: return the text of tokens, with special tokens. Having it promises that ``read`` uses
      ``prefill`` and ``step``: equal tokens then mean equal text. ``read`` is called for a run's first case, to check
      the promise, and for cases with other tokens than the reference's.

    If the tokens leave the reference's at a tie, ``read`` must return the text that ``prefill`` and ``step`` give along
    the subject's own tokens.
    """

    def vision(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Encode one page.

        Returns:
            ``vision_fusion`` ``[T, C]``, and any of ``STAGE.crops`` and ``STAGE.page``, such as ``projector.page``.
            Nothing, if the vendor's code would not encode these pixels.
        """

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> DecodeView:
        """Run the prompt with these features in the places of its image tokens, and fill a new cache."""

    def step(self, state: Any, token: int) -> Tensor:
        """Feed one token to a state that ``prefill`` returned, and return the next logits ``[V]``."""


class OpenSubject(StagedSubject, Protocol):
    """L3: modules by the vendor's names, for watching their outputs."""

    def module(self, name: str) -> nn.Module:
        """Return the vendor's module of a name, such as ``model.sam_model.blocks.3`` or ``model.layers.0``.

        Raises:
            AttributeError: if there is none.
        """


ADVICE = "dsocr new-adapter python FILE writes a template with all methods of a level"


def level_of(subject: Any) -> Level:
    """Return the level of a subject, or of a subject's class, by its methods.

    Raises:
        DsocrError: if a method of its level, or of a lower one, is missing.
    """
    has = {
        level: [name for name in names if callable(getattr(subject, name, None))] for level, names in METHODS.items()
    }
    offered = max((level for level, found in has.items() if found), default=None)
    needed = [name for level in METHODS if offered is not None and level <= offered for name in METHODS[level]]
    missing = [name for name in needed or METHODS[Level.TEXT] if not callable(getattr(subject, name, None))]
    if offered is None or missing:
        what = subject.__name__ if isinstance(subject, type) else type(subject).__name__
        shown = "no method of a subject" if offered is None else f"{', '.join(has[offered])} of {offered}"
        raise DsocrError(f"{what} has {shown}, and lacks {', '.join(missing)}; {ADVICE}")
    return offered


def parts_of(subject: Any) -> tuple[str, ...]:
    """Return the parts that a subject or its class implements completely; none if it has ``read``."""
    if callable(getattr(subject, "read", None)):
        return ()
    return tuple(part for part, names in PARTS.items() if all(callable(getattr(subject, name, None)) for name in names))


def level_of_parts(parts: Sequence[str]) -> Level:
    """Return the level of an implementation that consists of these parts and the engine."""
    return Level.INPUTS if parts == ("inputs",) else Level.STAGES


def said_of_parts(parts: Sequence[str]) -> str:
    """Return a sentence that says which stages are the subject's, and which the engine's."""
    return f"{listed(parts)}: the subject's; the rest: the built-in engine's, which is not compared"


OFFERABLE = {"presets": PRESET_NAMES, "prompts": PROMPT_NAMES}


@dataclass(frozen=True)
class Offers:
    """Names of the presets and prompts that a subject offers; None if it offers all."""

    presets: Collection[str] | None = None
    prompts: Collection[str] | None = None
    parts: tuple[str, ...] = ()
    """Parts that the subject implements; empty if it reads pages itself."""

    def __post_init__(self) -> None:
        for what, valid in OFFERABLE.items():
            given = getattr(self, what)
            if given is not None and (not given or (unknown := [*filter(lambda one: one not in valid, given)])):
                message = repr(unknown[0]) if given else "none"
                raise DsocrError(f"the subject's {what} name {message}; give names of {', '.join(valid)}")

    @classmethod
    def of(cls, subject: Any) -> Offers:
        """Read the offers of a subject or its class; raise ``DsocrError`` if a name is unknown."""
        given = {what: getattr(subject, what, None) for what in OFFERABLE}
        named = {what: None if names is None else tuple(map(str, names)) for what, names in given.items()}
        return cls(**named, parts=parts_of(subject))

    def check(self, case: Case) -> None:
        """Raise :class:`NotOfferedError` if a case has another preset or prompt."""
        from pytest_dsocr.records.case import prompt_name  # brings Pillow, which levels do not need

        asked = {
            "preset": (case.preset.name, self.presets),
            "prompt": (prompt_name(case.prompt, case.family), self.prompts),
        }
        for what, (name, offered) in asked.items():
            if offered is not None and name not in offered:
                message = f"not offered: the {what} {name}; the subject offers {listed([*offered])}"
                raise NotOfferedError(message, refused=f"{what} {name}")

    @property
    def summary(self) -> str:
        """Summary for the header; empty if everything is offered."""
        given = {what: getattr(self, what) for what in OFFERABLE}
        offered = "".join(f"; {what}: {', '.join(names)}" for what, names in given.items() if names is not None)
        return f"{offered}; {said_of_parts(self.parts)}" if self.parts else offered
