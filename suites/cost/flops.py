"""FLOPs of the subject on white pages, counted and compared with computed ones by stage and by module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.words import count, listed
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import render
from pytest_dsocr.cost.cost import WHOLE, Cost, CostDifference, by_module, differences, with_those_around
from pytest_dsocr.cost.decoder import ENGINE, HEAD, LAYERS, NORM, Way
from pytest_dsocr.cost.model import decode_step, parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.models import OF_VIEWS, VISION
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR

from ..contract.asked import Drawn

if TYPE_CHECKING:
    from torch import nn

    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.models.architecture import Architecture
    from pytest_dsocr.timing.probe.flops import Flops


FREE = DEEPSEEK_OCR.prompts["free"]
WAYS = {
    "": ENGINE,
    ", with the logits of all positions": Way(all_logits=True),
    ", with rotary angles as products": Way(angle_products=True),
    ", with the logits of all positions, and rotary angles as products": Way(all_logits=True, angle_products=True),
}
"""Correct ways to compute the decoder, by the words that describe each."""
SHOWN = 4
"""Number of differences to show; most mistakes affect all layers alike."""

Ways = Mapping[str, Mapping[str, Cost]]


@dataclass(frozen=True)
class Counted:
    """FLOPs of one page up to its first token."""

    work: Workload
    vision: Flops
    prefill: Flops
    state: Any
    """State of decoding after prefill."""


@dataclass(frozen=True)
class Scales:
    """Counter of the subject's FLOPs."""

    subject: Any
    """Subject of any level for a whole page, and of L2 for stages."""
    arch: Architecture
    """Architecture in the checkpoint's files, independent of the subject."""
    tokenizer: TextTokenizer
    drawn: Drawn
    """White pages."""

    def work(self, page_px: tuple[int, int], prompt: str, preset: str | Preset, tokens: int = 1) -> Workload:
        """Return the workload of a page of that size."""
        how: dict[str, Any] = {"generated_tokens": tokens, "family": self.arch.family}
        return Workload.of_prompt(page_px, prompt, preset, self.tokenizer, **how)

    def begin(self, page_px: tuple[int, int], prompt: str, preset: str | Preset) -> Counted:
        """Run the stages of a page up to its first token."""
        from pytest_dsocr.subjects.checked import copies

        work = self.work(page_px, prompt, preset)
        inputs = self.subject.inputs(self.drawn.blank(*page_px), prompt=render(prompt), preset=work.preset)
        given = copies(inputs)  # a subject may overwrite what it is given
        with self.counting() as vision:
            features = self.subject.vision(inputs)["vision_fusion"]
        with self.counting() as prefill:
            state = self.subject.prefill(given, features)
        return Counted(work, vision, prefill, state)

    def read(self, work: Workload, prompt: str) -> Flops:
        """Read a page with the subject's own loop."""
        page, tokens = self.drawn.blank(*work.page_px), work.generated_tokens
        with self.counting() as whole:
            self.subject.read(page, prompt=render(prompt), preset=work.preset, max_new_tokens=tokens)
        return whole

    def counting(self) -> AbstractContextManager[Flops]:
        """Return a context manager that counts all FLOPs within, and those of each module that the subject shows."""
        from pytest_dsocr.timing.probe.flops import counted_flops

        return counted_flops(self._modules)

    @cached_property
    def _modules(self) -> Mapping[str, nn.Module]:
        from pytest_dsocr.timing.probe.walk import module_of

        names = sorted(with_those_around(parameters(self.arch)))
        found = {name: module_of(self.subject, name) for name in names}
        return {name: module for name, module in found.items() if hasattr(module, "register_forward_hook")}


def vision_of(arch: Architecture, counted: Counted) -> list[Comparison]:
    """Compare the encoders and the projector, one by one if the subject shows them as modules."""
    ways = [stages_of(arch, counted.work, way=way) for way in (ENGINE, Way(angle_products=True))]
    computed = (by_module(stages[stage] for stage in VISION if stage in stages) for stages in ways)
    found, flops = min((_apart(one, counted.vision) for one in computed), key=len), []
    for stage, root in OF_VIEWS.items():
        if root in counted.vision.modules:
            inside = [one for one in found if f"{one.module}.".startswith(f"{root}.")]
            found = [one for one in found if one not in inside]
            flops.append(compared(f"{stage}/FLOPs", inside, counted.vision, root))
    return [*flops, compared("vision/FLOPs", found, counted.vision)]


def prefill_of(arch: Architecture, counted: Counted) -> Comparison:
    """Compare the prefill."""
    ways = {text: stages_of(arch, counted.work, way=way)["prefill"].layers for text, way in WAYS.items()}
    return nearest("prefill/FLOPs", ways, counted.prefill)


def step_of(arch: Architecture, work: Workload, length: int, found: Flops) -> Comparison:
    """Compare a step after which the cache holds ``length`` positions."""
    ways = {text: decode_step(arch, work, length, way=way).layers for text, way in WAYS.items()}
    return nearest(f"decode/FLOPs of the step to {length} positions", ways, found)


def page_of(arch: Architecture, work: Workload, found: Flops) -> Comparison:
    """Compare a whole reading, which may end before its limit of tokens."""
    ways = {
        f", {tokens} of {work.generated_tokens} tokens{text}": by_module(
            stages_of(arch, replace(work, generated_tokens=tokens), way=way).values()
        )
        for tokens in range(work.generated_tokens, 0, -1)
        for text, way in WAYS.items()
    }
    return nearest("read/FLOPs", ways, replace(found, modules=_of_every_token(found)))


def nearest(what: str, ways: Ways, found: Flops) -> Comparison:
    """Compare with the nearest of several correct ways."""
    apart = {text: _apart(layers, found) for text, layers in ways.items()}
    least = min(apart, key=lambda text: len(apart[text]))
    return compared(what, apart[least], found, text=least)


def compared(what: str, apart: Sequence[CostDifference], found: Flops, root: str = WHOLE, text: str = "") -> Comparison:
    """Return whether FLOPs are as computed, with the modules that differ."""
    if found.unknown:
        runs = listed([f"{name} ({count(times, 'run')})" for name, times in found.unknown.items()], 3)
        return not_compared(what, Reason.TELLS_NOTHING, f"no formula is known for {runs}")
    if not found.algorithmic:
        measured = "none was counted; FLOPs in a CUDA graph, in compiled code or in another process are not seen"
        return not_compared(what, Reason.TELLS_NOTHING, measured)
    if not apart:
        flops = found.modules[root].total() if root else found.algorithmic
        counted = found.modules.get(root, found.operators)
        fused = sum(flops for name, flops in counted.items() if name in found.uncounted)
        policy = f", {fused:,} of them in fused attention, counted by all pairs of queries and keys" if fused else ""
        return Comparison(what, Verdict.MATCH, f"{flops:,}{text}{policy}")
    first, *others = map(str, apart[:SHOWN])
    more = [f"and {len(apart) - SHOWN} more"] if len(apart) > SHOWN else []
    return Comparison(what, Verdict.WRONG, first, details=(*others, *more))


def _of_every_token(found: Flops) -> dict[str, Counter[str]]:
    """Leave out the decoder's modules that ran only for the prompt; steps may bypass modules."""
    seen = (name for name in found.modules if found.calls[name] > 1 or not name.startswith((LAYERS, NORM, HEAD)))
    return {name: found.modules[name] for name in seen}


def _apart(layers: Mapping[str, Cost], found: Flops) -> list[CostDifference]:
    return differences(layers, {WHOLE: found.operators, **found.modules}, found.calls)
