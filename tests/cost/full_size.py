"""The vendor's dimensions, and counted FLOPs compared with computed ones."""

from collections.abc import Mapping

from torch import nn

from pytest_dsocr.cost.cost import WHOLE, Cost, differences, with_those_around
from pytest_dsocr.cost.model import parameters
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.perf.probe.flops import Flops

FULL = Architecture()


def shown(of: DeepseekOCR) -> dict[str, nn.Module]:
    """The modules that something is computed for, and those around them."""
    names = with_those_around(parameters(of.arch))
    return {name: module for name, module in of.named_modules() if name in names}


def apart(layers: Mapping[str, Cost], found: Flops) -> list[str]:
    """What differs, in words."""
    return [str(one) for one in differences(layers, {WHOLE: found.operators, **found.modules}, found.calls)]
