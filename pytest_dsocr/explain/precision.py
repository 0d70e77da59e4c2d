"""What fewer bits cost, stage by stage.

Of a subject: its stages up to one, the vendor's behind it, along the reference's tokens. Of a precision: the session
with one stage's weights rounded, and with none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.budget import divergence
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.mistake import Changes, Target
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.families.family import FUSION, PREFILL
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.observation import BEST_OF_STEP, Observation, Step

DECODER = "decoder"
"""Prefill and the steps, which are not exchanged apart."""


def cost_of_stages(engine: Engine[Any], answer: Answer, expected: Observation) -> dict[str, float]:
    """Return what each stage of a subject adds to the divergence from the reference, in nats.

    Vision's tensors of the subject are put in the place of the engine's, one stage more at a time; what the decoder
    costs is the rest. A stage whose tensors the subject does not give is in the cost of the next that it does.

    Args:
        engine: the vendor's kernels in the subject's dtype, on its device.
        answer: of a subject with stages, whole.
        expected: what the reference did.
    """
    if answer.input_tensors is None or not answer.forced or not answer.vision_tensors:
        return {}
    inputs = Inputs(**{name: tensor.to(engine.model.device) for name, tensor in answer.input_tensors.items()})
    features = _vision(engine, inputs, {})
    before = _divergence(logits_along(engine, inputs, features, expected.token_ids), expected.steps)
    found = {}
    for stage, given in _more_and_more(engine, answer.vision_tensors):
        made, now = _vision(engine, inputs, given), before
        if made.dtype != features.dtype or not torch.equal(made, features):  # of equal ones the decoder makes the same
            now = _divergence(logits_along(engine, inputs, made, expected.token_ids), expected.steps)
        found[stage], before, features = now - before, now, made
    pairs = zip(answer.forced, expected.steps, strict=True)
    return {**found, DECODER: fmean(divergence(own.at_reference, step.best.logits) for own, step in pairs) - before}


def _more_and_more(engine: Engine[Any], seams: Mapping[str, Tensor]) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """Yield each stage that the subject shows, and its tensors up to there."""
    given: dict[str, Tensor] = {}
    for stage in (*(one.name for one in engine.family.of_views), FUSION):
        own = {name: tensor for name, tensor in seams.items() if name.partition(".")[0] == stage}
        if own:
            given |= own
            yield stage, given


def _vision(engine: Engine[Any], inputs: Inputs, given: Mapping[str, Tensor]) -> Tensor:
    """Return the features ``[T, C]`` that the engine makes of the pixels and of what it is given in its own's place."""
    made = {(stage, view): tensor for name, tensor in given.items() for stage, _, view in [name.partition(".")]}
    return given[FUSION] if FUSION in given else Clean(engine, inputs, made).fused


def logits_along(engine: Engine[Any], inputs: Inputs, features: Tensor | None, tokens: tuple[int, ...]) -> Tensor:
    """Return the logits ``[T, V]`` in front of each of ``tokens``, all of which one pass is given."""
    own = torch.tensor([tokens[:-1]], dtype=inputs.input_ids.dtype, device=inputs.input_ids.device)
    mask = torch.zeros_like(own, dtype=inputs.images_seq_mask.dtype)
    longer = replace(
        inputs,
        input_ids=torch.cat([inputs.input_ids, own], 1),
        images_seq_mask=torch.cat([inputs.images_seq_mask, mask], 1),
    )
    state = engine.pipeline.prefill_with(longer, features, all_logits=True)
    assert state.all_logits is not None
    return state.all_logits[0, -len(tokens) :]


def _divergence(logits: Tensor, steps: tuple[Step, ...]) -> float:
    at_best = (row[list(step.best.ids)].tolist() for row, step in zip(logits, steps, strict=True))
    return fmean(divergence(own, step.best.logits) for own, step in zip(at_best, steps, strict=True))


PRECISIONS: Mapping[str, int] = {"fp8": 8, "int8": 8, "int4": 4}
"""Of weights, with their bits: as in the catalogue of mistakes, ``int8`` with a scale for each row, ``int4`` for 32."""
STAGES = ("sam", "clip", PREFILL)
"""The stages whose blocks have weights; ``prefill`` is the whole decoder, with its experts."""


@dataclass(frozen=True)
class Cost:
    """What pages lose with one stage's weights in a precision, on average over pages."""

    stage: str
    precision: str
    kl: float
    """Divergence of the next token's distribution, in nats."""
    tokens: float
    """Share of tokens that are another's best."""


@dataclass(frozen=True, eq=False)
class _Page:
    inputs: Inputs
    features: Tensor | None
    tokens: tuple[int, ...]
    ids: Tensor
    """Of the best tokens of each step ``[T, 5]``, the best first."""
    logits: Sequence[Sequence[float]]
    """Theirs."""


class Costs:
    """The costs on some pages.

    Args:
        engine: the session, whose weights are changed and put back.
        pages: the inputs of each.
        max_new_tokens: the ceiling of each reading, along which costs are measured.
        on_progress: called after each pass over a page.
    """

    def __init__(
        self, engine: Engine[Any], pages: Sequence[Inputs], max_new_tokens: int, on_progress: Callable[[], object]
    ) -> None:
        self.engine, self.on_progress = engine, on_progress
        self.pages = [self._read(inputs, max_new_tokens) for inputs in pages]

    @property
    def tokens(self) -> int:
        """How many tokens all pages have."""
        return sum(len(page.tokens) for page in self.pages)

    def __iter__(self) -> Iterator[Cost]:
        """Measure each stage in each precision, one after the other."""
        for stage in STAGES:
            for precision in PRECISIONS:
                with Changes() as changes:
                    mistakes()[f"{stage}.weights-{precision}"].plant(Target.of_stage(self.engine, changes, stage))
                    lost = [self._lost(page, stage) for page in self.pages]
                yield Cost(stage, precision, fmean(kl for kl, _ in lost), fmean(tokens for _, tokens in lost))

    def _read(self, inputs: Inputs, max_new_tokens: int) -> _Page:
        tokens = self.engine.run_prepared(inputs, max_new_tokens=max_new_tokens).token_ids
        features = Clean(self.engine, inputs).in_prompt
        best = logits_along(self.engine, inputs, features, tokens).topk(BEST_OF_STEP)
        self.on_progress()
        return _Page(inputs, features, tokens, best.indices, best.values.tolist())

    def _lost(self, page: _Page, stage: str) -> tuple[float, float]:
        features = page.features if stage == PREFILL else Clean(self.engine, page.inputs).in_prompt
        logits = logits_along(self.engine, page.inputs, features, page.tokens)
        at_best = logits.gather(1, page.ids).tolist()
        self.on_progress()
        kl = fmean(divergence(own, best) for own, best in zip(at_best, page.logits, strict=True))
        return kl, float((logits.argmax(1) != page.ids[:, 0]).double().mean())


def fewest_bits(costs: Sequence[Cost], budget: Mapping[str, float]) -> dict[str, str]:
    """Return by stage the precision of the fewest bits whose cost a budget allows; empty where none is allowed."""

    def is_allowed(cost: Cost) -> bool:
        return all(getattr(cost, name) <= allowed for name, allowed in budget.items())

    found = {}
    for stage in STAGES:
        allowed = [cost for cost in costs if cost.stage == stage and is_allowed(cost)]
        found[stage] = min(allowed, key=lambda cost: (PRECISIONS[cost.precision], cost.kl)).precision if allowed else ""
    return found
