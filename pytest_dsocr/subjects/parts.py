"""A part of an implementation, and the built-in engine for the rest of it: what a subject without ``read`` is.

What is the engine's is named in ``not_offered``, or raises ``NotOfferedError``, so that it is never compared with the
reference. Pages are read through the part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import copied, copies, own_tensors
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.forced_steps import go_on
from pytest_dsocr.subjects.protocol import DECODER, NotOfferedError, Setup, level_of_parts, parts_of, said_of_parts

SAID = ("dtype", "dtypes", "precision", "presets", "prompts", "policy", "text_of", "close")
"""Optional members of a subject that a part may have too."""


class Completed:
    """L1: a part that makes inputs, read by the engine.

    Args:
        part: what :func:`~pytest_dsocr.subjects.protocol.parts_of` finds a part in.
        setup: the run's.
    """

    def __init__(self, part: Any, setup: Setup) -> None:
        self._part, self._setup, self._parts = part, setup, parts_of(part)
        absent = {"dtypes", *TENSORS} if "inputs" not in self._parts else set[str]()
        self.not_offered = frozenset(absent | ({FUSION} if "vision" not in self._parts else set()))
        for name in SAID:
            if hasattr(part, name):
                setattr(self, name, getattr(part, name))

    @cached_property
    def _engine(self) -> EngineSubject:
        whole = engine_subject(self._setup)
        for stage in {stage.name for stage in whole.engine.family.of_views}.intersection(self._parts):
            setattr(whole.engine.model, stage, partial(self._stage, stage))
        return whole

    def _stage(self, name: str, *given: Tensor) -> Tensor:
        """Run a stage of the part instead of the engine's stage."""
        return copied("vision", f"{name} gave", name, getattr(self._part, name)(*(one.clone() for one in given)))

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> Mapping[str, Tensor]:
        """Return the part's inputs, or the engine's."""
        maker = self._part if "inputs" in self._parts else self._engine
        return cast("Mapping[str, Tensor]", maker.inputs(page, prompt=prompt, preset=preset))

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end, each stage by the part that has it."""
        whole = self._engine
        made = own_tensors("read", "inputs", self.inputs(page, prompt=prompt, preset=preset))
        inputs = {name: value.to(whole.engine.model.device) for name, value in made.items()}
        decoder = self._part if DECODER in self._parts else whole
        state = decoder.prefill(copies(inputs), self._seams(inputs).get(FUSION))
        policy, prompt_ids = getattr(self, "policy", None) or whole.policy, inputs["input_ids"][0].tolist()
        ban, logits = policy.ban(prompt_ids), state.logits.reshape(1, -1)
        tokens = pick(logits, [ban.banned()])
        ban.push(tokens[-1])
        limit = replace(policy, max_new_tokens=max_new_tokens).room(len(prompt_ids))
        go_on(lambda token: decoder.step(state, token).flatten(), tokens, ban, policy.eos_id, limit)
        return clean_output(self.text_of(tokens))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Decode tokens, special ones kept."""
        return self._engine.text_of(token_ids)

    def _seams(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        maker = self._part if "vision" in self._parts else self._engine
        return own_tensors("vision", "vision", maker.vision(copies(inputs)))


class CompletedStages(Completed):
    """L2: a part that has a stage; fulfils ``StagedSubject``."""

    @property
    def seams(self) -> tuple[str, ...]:
        """The seams of vision that are the part's."""
        own = getattr(self._part, "seams", ()) if "vision" in self._parts else self._engine.seams
        return tuple(name for name in own if {"vision", TensorName.parse(name).stage}.intersection(self._parts))

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the part's seams, and what goes into prefill, whosever it is."""
        found, shown = self._seams(inputs), (FUSION, *self.seams)
        return found if "vision" in self._parts else {name: found[name] for name in shown if name in found}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        """Run the prompt, if the part has a decoder."""
        if DECODER not in self._parts:
            raise NotOfferedError("not offered: prefill and decode steps; they are the built-in engine's")
        return self._part.prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        """Feed one token; returns the next logits ``[V]``, and moves ``state`` on."""
        return cast("Tensor", self._part.step(state, token))


def completed(part: Any, setup: Setup) -> Completed:
    """Return a part as a subject, and note what of it is the engine's."""
    parts = parts_of(part)
    current().note(said_of_parts(parts))
    return (CompletedStages if level_of_parts(parts) >= Level.STAGES else Completed)(part, setup)
