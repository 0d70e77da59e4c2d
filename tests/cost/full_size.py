"""The vendor's dimensions on the device ``meta``: every operator's shapes, and no number."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from pytest_dsocr.cost.cost import WHOLE, Cost, differences, with_those_around
from pytest_dsocr.cost.model import calls, parameters
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.attention import ATTENTION
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.experts import MixtureOfExperts
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.perf.probe.flops import Flops, counted_flops

META = torch.device("meta")
FULL = Architecture()


def model(attention: str = "eager") -> DeepseekOCR:
    """The whole model. Its experts are gathered: which tokens go to which expert is a matter of numbers."""
    found = DeepseekOCR.empty(FULL, ATTENTION[attention], META, torch.bfloat16)
    found.stack_experts()
    for layer in found.model.decoder_layers():
        if isinstance(layer.mlp, MixtureOfExperts):
            layer.mlp.looped = layer.mlp.gathered  # type: ignore[method-assign]
    return found


def vision(of: DeepseekOCR, work: Workload) -> Flops:
    """Count one page up to the projector."""
    core = of.model
    with torch.no_grad(), counted_flops(shown(of)) as found:
        for side_px, views in calls(work):
            sam = core.sam_model(torch.empty(views, 3, side_px, side_px, device=META, dtype=torch.bfloat16))
            clip = core.vision_model(sam)
            core.projector(torch.cat([clip[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1))
    return found


def decode(of: DeepseekOCR, cache: KVCache, tokens: int) -> Flops:
    """Count one call of the decoder on so many new positions."""
    with torch.no_grad(), counted_flops(shown(of)) as found:
        of.decode(torch.empty(1, tokens, FULL.decoder.hidden_size, device=META, dtype=torch.bfloat16), cache)
    return found


def shown(of: DeepseekOCR) -> dict[str, nn.Module]:
    """The modules that something is computed for, and those around them."""
    names = with_those_around(parameters(of.arch))
    return {name: module for name, module in of.named_modules() if name in names}


def apart(layers: Mapping[str, Cost], found: Flops) -> list[str]:
    """What differs, in words."""
    return [str(one) for one in differences(layers, {WHOLE: found.operators, **found.modules}, found.calls)]
