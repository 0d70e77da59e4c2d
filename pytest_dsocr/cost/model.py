"""Cost of a page, stage by stage and module by module."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_dsocr.base.words import si
from pytest_dsocr.contract.presets import crop_count, encoded_side
from pytest_dsocr.cost import decoder
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, StageCost, moved, total
from pytest_dsocr.cost.decoder import ENGINE, Call, Way
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import load

LayerCosts = dict[str, Cost]


def stages_of(arch: Architecture, work: Workload, *, way: Way = ENGINE) -> dict[str, StageCost]:
    """Return the cost of each stage of ``work``: all its views, all its decode steps.

    Weights are read once in each call: of an encoder for the crops together and for the whole page, of the prefill, of
    each step.
    """
    vision = load(arch.family.cost).vision
    found = _sum([vision(arch, side_px, views, work.dtype, way) for side_px, views in calls(work)])
    found["vision_fusion"] = _fusion(arch, work)
    found["prefill"] = decoder.layers(arch.decoder, Call(range(work.prompt_tokens), ITEM_BYTES[work.dtype], way))
    found["decode"] = _decode(arch, work, way)
    return {stage: StageCost(stage, layers) for stage, layers in found.items()}


def calls(work: Workload) -> list[tuple[int, int]]:
    """Return the calls of the encoders for one page: the side of the views in px, and how many there are."""
    crops = crop_count(work.grid)
    return [*([(work.preset.tiling.crop_px, crops)] if crops else []), (work.preset.view_size, 1)]


def decode_step(arch: Architecture, work: Workload, length: int, *, way: Way = ENGINE) -> StageCost:
    """Return the cost of the step that fills the cache up to ``length`` positions."""
    call = Call(range(length - 1, length), ITEM_BYTES[work.dtype], way)
    return StageCost("decode", decoder.layers(arch.decoder, call))


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module in the checkpoint."""
    return {
        **load(arch.family.cost).parameters(arch),
        **{f"model.{name}": arch.decoder.hidden_size for name in arch.family.vectors},
        **decoder.parameters(arch.decoder),
    }


def cache_bytes(arch: Architecture, work: Workload) -> int:
    """Return the bytes of keys and values when the last token is written."""
    positions = arch.family.cache.length(work.prompt_tokens, work.decode_steps)
    return decoder.cache_bytes(arch.decoder, positions, ITEM_BYTES[work.dtype])


def activation_peaks(arch: Architecture, work: Workload) -> dict[str, int]:
    """Return the peak bytes of activations in each stage, in addition to weights and cache.

    A bound for code that is written like the engine: each operator's result is stored. Attention of the encoders is
    fused, except for its bias, which a kernel may copy to a size that it prefers.
    """
    size, is_eager = ITEM_BYTES[work.dtype], work.attention == "eager"
    each = [load(arch.family.cost).activations(arch, side_px, views, work.dtype) for side_px, views in calls(work)]
    prompt, held = work.prompt_tokens, arch.family.cache.length(work.prompt_tokens, work.decode_steps)
    return {
        **{stage: max(one[stage] for one in each) for stage in each[0]},
        "prefill": decoder.activations(arch.decoder, prompt, prompt, size, is_eager=is_eager),
        "decode": decoder.activations(arch.decoder, 1, held, size, is_eager=is_eager),
    }


@dataclass(frozen=True)
class PageCost:
    """Total cost of one page."""

    flops: int
    moved_bytes: int
    """At least; see :mod:`pytest_dsocr.cost.cost`."""
    cache_bytes: int
    """Bytes of keys and values at the end."""
    activation_bytes: int
    """At most, in the stage that takes most."""

    @classmethod
    def of(cls, arch: Architecture, work: Workload) -> PageCost:
        """Return that of ``work``."""
        whole = total(stage.cost for stage in stages_of(arch, work).values())
        peaks = activation_peaks(arch, work)
        return cls(whole.matrix_flops, whole.bytes, cache_bytes(arch, work), max(peaks.values()))

    def __str__(self) -> str:
        return (
            f"{si(self.flops)}FLOP, {si(self.moved_bytes)}B to be moved; "
            f"{si(self.cache_bytes)}B of keys and values, at most {si(self.activation_bytes)}B of activations"
        )


def _fusion(arch: Architecture, work: Workload) -> LayerCosts:
    size, width = ITEM_BYTES[work.dtype], arch.decoder.hidden_size
    features = sum(views * encoded_side(side_px, arch.encoder.patch_px) ** 2 for side_px, views in calls(work))
    through = moved(size, read=features * width, written=work.image_tokens * width)
    through += moved(size, read=work.image_tokens * width)  # scattered into the prompt's embeddings
    read = moved(size, weights=width)
    costs = {f"model.{name}": read for name in arch.family.vectors}
    first = next(iter(costs))
    return {**costs, first: costs[first] + through}


def _decode(arch: Architecture, work: Workload, way: Way) -> LayerCosts:
    """Sum the costs of the steps, which grow by a constant until the cache is full."""
    if not (growing := min(work.decode_steps, arch.family.cache.ring or work.decode_steps)):
        return {}
    first, last = (decode_step(arch, work, work.prompt_tokens + step, way=way).layers for step in (1, growing))
    full = work.decode_steps - growing
    return {name: (first[name] + last[name]).scaled(growing, 2) + last[name].scaled(full) for name in first}


def _sum(parts: list[dict[str, LayerCosts]]) -> dict[str, LayerCosts]:
    """Add calls of the same stages up, module by module."""
    return {stage: {name: total(part[stage][name] for part in parts) for name in parts[0][stage]} for stage in parts[0]}
