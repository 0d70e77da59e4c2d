"""The protocol of a subject, level by level: from one method that returns text to named modules.

What holds for every method:

- What it gives is copied when it returns, before the subject is called again: a tensor may be a buffer that the next
  call writes to, as CUDA graphs do. On a GPU its values are ready on the current stream by then.
- What it is given it may overwrite. So may whoever gave it, once the method has returned: a state that needs the pixels
  or the features later keeps a copy.
- What it gives is taken for the builtin type that it is derived from, or for a plain tensor: what a class of the
  subject's own overrides has no say. Tensors are dense, of real numbers, and have values (none on the device ``meta``).
- A method that raises ``NotOfferedError`` offers less of this page: that is skipped as not offered, and never a pass.
- A method that raises anything else ends the case: what was heard before is compared, what comes after it is lost, and
  each test that asks for something of that is an error of the method's stage, never a verdict. NaN and infinity are
  values, compared and reported like others: return them, do not raise.

Nothing here imports torch, so that a subject's level is known before its weights are loaded.
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
"""What a subject has at each level, beside the methods of those below."""


DECODER = "prefill and step"
PARTS: Mapping[str, tuple[str, ...]] = {
    "inputs": ("inputs",),
    "vision": ("vision",),
    **{stage.name: (stage.name,) for family in MODELS.values() for stage in family.of_views},
    DECODER: ("prefill", "step"),
}
"""The parts of an implementation that are subjects without ``read``, and the methods of each.

The part for a stage of the encoder, such as ``projector``, takes what the stage takes and returns its features. For the
other methods see :class:`StagedSubject`.
"""


class DecodeView(Protocol):
    """Where decoding stands after ``prefill`` and after each ``step``, which moves it on.

    One that knows beforehand which tokens it chooses says so in ``chosen``: they are compared as well as its logits.
    """

    @property
    def logits(self) -> Tensor:
        """Logits of the next token, ``[V]`` or ``[1, V]``; those of ``prefill`` are read when it returns."""

    @property
    def cache(self) -> CacheView:
        """The key-value cache."""


class TextSubject(Protocol):
    """L0: a page in, text out.

    Beside it a subject of any level may have

    - ``dtype``: what it computes in, such as ``bfloat16``; the run's ``--dsocr-dtype`` if left out;
    - ``precision``: ``int8``, ``fp8`` or ``int4`` for one whose weights, activations or cache are in fewer bits than
      ``dtype`` has; it is then judged by a budget, see ``--dsocr-quantization-budget``;
    - ``dtypes``: those beside the run's that its factory takes as ``Setup.dtype`` and computes in as the vendor's code
      does, rounding where that rounds, such as ``("bfloat16",)``; a default run then asks for one page in bfloat16;
    - ``presets``, ``prompts``: the names of those that it offers, such as ``("gundam",)`` and ``("markdown",)``; all if
      left out. Nothing else is asked of it, and it is reported as not offered;
    - ``first_token_ms``: after each ``read``, the milliseconds from the request to the first text, of one that streams;
    - ``announce(page, *, prompt, preset, max_new_tokens, token_ids)``: called in front of a case's ``inputs`` with the
      reference's tokens, for one that must know beforehand along which tokens its steps will be led;
    - ``not_offered``: after each ``inputs``, the names of those that are not its own (``input_ids`` and so on,
      ``dtypes``), and ``vision_fusion`` where it gives none; they are not compared;
    - ``ended_by``: after each ``read``, why it ended, such as ``length`` for a limit of tokens;
    - ``write(text, page, folder)``: write ``result.mmd`` and the other files that the vendor writes;
    - ``read_many(pages, *, prompt, preset, max_new_tokens)``: read several image files together, as a batch or as
      requests that are open at the same time; gives their texts in the order asked, each as of that page alone;
    - ``close()``: called when the run is over.
    """

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end.

        Args:
            page: an image file; a folder is several pages of one prompt, where the model reads such.
            prompt: the text, with its ``<image>``.
            preset: the sizes.
            max_new_tokens: the ceiling of the output.

        Returns:
            The decoded output with its markup (``<|ref|>``, ``<|det|>``), without the EOS; white space around it is
            stripped, as the vendor strips it, and not compared.
        """


class InputsSubject(TextSubject, Protocol):
    """L1: the inputs that it makes of a page are shown as well."""

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> Mapping[str, Tensor]:
        """Return what goes into the model, named and shaped as the fields of ``contract.inputs.Inputs``."""


class StagedSubject(InputsSubject, Protocol):
    """L2: vision, prefill and each decode step are called apart, and the cache is shown.

    Beside it, it may have

    - ``seams``: names of what ``vision`` gives in addition to ``vision_fusion``; it must give what it names;
    - ``watched(stages)``: a context in which it enters ``stages(name)`` around each of its stages, or some: so that
      ``preprocess`` is timed apart from what else ``inputs`` does, and ``vision_fusion`` from ``prefill``;
    - ``policy``: a ``contract.policy.DecodePolicy``, how it chooses; the vendor's if left out;
    - ``text_of(token_ids)``: tokens to text, special tokens kept. A subject that has it says that its ``read`` goes
      through ``prefill`` and ``step``, so that the same tokens mean the same text: ``read`` is then called for a run's
      first case, where that is compared with it, and where tokens differ.

    Where tokens part from the reference's over a tie, what ``read`` gives must be what ``prefill`` and ``step`` give
    along the subject's own tokens from there on.
    """

    def vision(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Run vision on one page: ``vision_fusion`` ``[T, C]``, and any of ``STAGE.crops`` and ``STAGE.page``,
        ``projector.*``; nothing where the vendor's gate is shut."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> DecodeView:
        """Run the prompt with these features at its image tokens, filling a new cache."""

    def step(self, state: Any, token: int) -> Tensor:
        """Feed one token; returns the next logits ``[V]``, and moves ``state``, which ``prefill`` returned, on."""


class OpenSubject(StagedSubject, Protocol):
    """L3: modules are found by the vendor's names, so that their outputs can be watched."""

    def module(self, name: str) -> nn.Module:
        """Return the module that the vendor calls ``name``, such as ``model.sam_model.blocks.3`` or ``model.layers.0``;
        raise ``AttributeError`` where there is none."""


def level_of(subject: Any) -> Level:
    """Return the level of a subject, or of the class of one, by the methods that it has.

    Raises:
        DsocrError: where a level is there in part, or without those below it.
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
        raise DsocrError(f"{what} has {shown}, and lacks {', '.join(missing)}; see pytest_dsocr.subjects.protocol")
    return offered


def parts_of(subject: Any) -> tuple[str, ...]:
    """Return the parts that a subject, or the class of one, has all methods of; none where it reads pages itself."""
    if callable(getattr(subject, "read", None)):
        return ()
    return tuple(part for part, names in PARTS.items() if all(callable(getattr(subject, name, None)) for name in names))


def level_of_parts(parts: Sequence[str]) -> Level:
    """Return the level of these parts with the engine behind them."""
    return Level.INPUTS if parts == ("inputs",) else Level.STAGES


def said_of_parts(parts: Sequence[str]) -> str:
    """Return a sentence that says whose each stage is."""
    return f"{listed(parts)}: the subject's; the rest: the built-in engine's, which is not compared"


OFFERABLE = {"presets": PRESET_NAMES, "prompts": PROMPT_NAMES}


@dataclass(frozen=True)
class Offers:
    """The names of what is offered; None where it is all."""

    presets: Collection[str] | None = None
    prompts: Collection[str] | None = None
    parts: tuple[str, ...] = ()
    """Of an implementation that is a part, those that it has."""

    def __post_init__(self) -> None:
        for what, valid in OFFERABLE.items():
            given = getattr(self, what)
            if given is not None and (not given or (unknown := [*filter(lambda one: one not in valid, given)])):
                message = repr(unknown[0]) if given else "none"
                raise DsocrError(f"the subject's {what} name {message}; give names of {', '.join(valid)}")

    @classmethod
    def of(cls, subject: Any) -> Offers:
        """Return what a subject or its class says that it offers; raise ``DsocrError`` on a name that is not known."""
        given = {what: getattr(subject, what, None) for what in OFFERABLE}
        named = {what: None if names is None else tuple(map(str, names)) for what, names in given.items()}
        return cls(**named, parts=parts_of(subject))

    def check(self, case: Case) -> None:
        """Raise :class:`NotOfferedError` where a case is not of them."""
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
        """A summary for the header, beside the level; empty where it offers all."""
        given = {what: getattr(self, what) for what in OFFERABLE}
        offered = "".join(f"; {what}: {', '.join(names)}" for what, names in given.items() if names is not None)
        return f"{offered}; {said_of_parts(self.parts)}" if self.parts else offered
