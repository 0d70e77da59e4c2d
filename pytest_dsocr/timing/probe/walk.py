"""A page read stage by stage: each stage of the subject is called separately."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.models import OF_VIEWS
from pytest_dsocr.models.spec import FUSION, PREFILL, PREPROCESS, TOKENIZER
from pytest_dsocr.timing.probe.stopwatch import Stopwatch
from pytest_dsocr.timing.rounds import BEFORE_STEPS, FEW, LATE, ON_DEVICE

MODULES = {stage: module for stage, module in OF_VIEWS.items() if module}
"""Stages that are modules, with the vendor's names of these."""
FIRST_LAYER = "model.layers.0"
OF_VISION = tuple(name for name in ON_DEVICE if name != PREFILL)
STEPS = ("decode", "decode.early", LATE)


@dataclass
class Left:
    """Results of the last walk, for one that starts at a later stage."""

    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    fused: Tensor | None = None
    tokens: Sequence[int] = ()


@dataclass
class Walk:
    """Stages of one page, run in order, and the best token of each step, without any rule of repetition.

    If ``only`` names quantities, stages that none of them needs are skipped, and their previous results are used. Late
    steps need all steps before them; for the others the first ones are enough.
    """

    subject: Any
    page: Path
    asked: Mapping[str, Any]
    max_new_tokens: int
    watch: Stopwatch
    left: Left = field(default_factory=Left)
    only: frozenset[str] = frozenset()
    along: Sequence[int] = ()
    """Tokens to feed instead of the best ones; none for free decoding."""
    tokens: list[int] = field(default_factory=list)

    def whole(self) -> None:
        """Go from the page to its text."""
        if self._needs(*BEFORE_STEPS, "first_token", *STEPS):
            _, state = self.begin()
            if self._needs(*STEPS):
                self.decode(state)
                self.left.tokens = max(self.tokens, self.left.tokens, key=len)
        if self._needs("postprocess"):
            self.end()

    def begin(self) -> tuple[Mapping[str, Tensor], Any]:
        """Make the inputs, run vision and prefill; return the inputs and the state. The first token is chosen."""
        if self._needs(PREPROCESS, TOKENIZER, "first_token"):
            with self._within(PREPROCESS), self.watch.lap(TOKENIZER):
                inputs = self.subject.inputs(self.page, **self.asked)
            self.left.inputs = _copied(inputs)
        if self._needs(*OF_VISION, "first_token"):
            inputs = _copied(self.left.inputs)
            with self._encoders(), self.watch.lap("vision"):
                fused = self.subject.vision(inputs).get("vision_fusion")
            self.left.fused = None if fused is None else fused.clone()
        if not self._needs(FUSION, PREFILL, "first_token", *STEPS):
            return self.left.inputs, None
        inputs, fused = _copied(self.left.inputs), self.left.fused
        fused = None if fused is None else fused.clone()
        with self._within(FUSION), self.watch.lap(PREFILL):
            state = self.subject.prefill(inputs, fused)
            self._choose(state.logits)
        return self.left.inputs, state

    def _needs(self, *quantities: str) -> bool:
        return not self.only or not self.only.isdisjoint(quantities)

    def decode(self, state: Any, around: Callable[[], Any] = nullcontext) -> None:
        """Feed each chosen token until the ceiling or the end; ``around`` returns a context for each step."""
        most, eos = self.max_new_tokens, getattr(getattr(self.subject, "policy", None), "eos_id", None)
        if self.only and LATE not in self.only:
            most = min(most, 2 * FEW + 1)
        if self.along:
            most, eos = min(most, len(self.along)), None
        while len(self.tokens) < most and self.tokens[-1] != eos:
            with self.watch.lap("decode"):
                with around():
                    logits = self.subject.step(state, self.tokens[-1])
                self._choose(logits)

    def _choose(self, logits: Tensor) -> None:
        best = int(logits.argmax())  # a page along given tokens waits for the device as well
        self.tokens.append(self.along[len(self.tokens)] if self.along else best)

    def end(self) -> str:
        """Return the text, if the subject decodes tokens."""
        if not callable(text_of := getattr(self.subject, "text_of", None)):
            return ""
        with self.watch.lap("postprocess"):
            text: str = text_of(list(self.left.tokens or self.tokens))
        return text

    def _within(self, part: str) -> AbstractContextManager[None]:
        """Time a stage that is part of a method, if the subject shows when it runs."""
        watched: Callable[[Any], AbstractContextManager[None]] | None = getattr(self.subject, "watched", None)
        if watched is None:
            return nullcontext()
        return watched(lambda stage: self.watch.lap(stage) if stage == part else nullcontext())

    @contextmanager
    def _encoders(self) -> Iterator[None]:
        """Time the encoders and the projector, if the subject has them as modules."""
        with ExitStack() as hooks:
            for stage, name in MODULES.items():
                if (module := module_of(self.subject, name)) is not None:
                    self._hook(stage, module, hooks)
            yield

    def _hook(self, stage: str, module: Any, hooks: ExitStack) -> None:
        running: list[Callable[[], None]] = []
        before = module.register_forward_pre_hook(lambda *_: running.append(self.watch.start(stage)))
        after = module.register_forward_hook(lambda *_: running.pop()(), always_call=True)
        hooks.callback(before.remove)
        hooks.callback(after.remove)


def module_of(subject: Any, name: str) -> Any:
    """Return the module that the vendor calls ``name``, or None if the subject does not expose it."""
    if not callable(found := getattr(subject, "module", None)):
        return None
    try:
        return found(name)
    except AttributeError:
        return None


def _copied(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors: a subject may overwrite its arguments."""
    return {name: tensor.clone() if isinstance(tensor, torch.Tensor) else tensor for name, tensor in inputs.items()}
