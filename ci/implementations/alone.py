"""Processors of servers that need a GPU, loaded alone from their unpacked wheels: ``ci.implementations.alone:vllm``.

What they import beside the processor is stood in for, by no more than they use; what is stood in is listed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytest_dsocr.adapters.processor import ProcessorSubject, subject
from pytest_dsocr.subjects.protocol import Setup

VLLM = "processor:vllm.transformers_utils.processors.deepseek_ocr:DeepseekOCRProcessor"
SGLANG = "processor:sglang.srt.configs.deepseek_ocr:DeepseekOCRProcessor"


class Compose:
    """One after the other, as torchvision documents it."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        """Give what comes out at the end."""
        for transform in self.transforms:
            value = transform(value)
        return value


class ToTensor:
    """A picture of 8 bits a channel to ``[C, H, W]`` from 0 to 1, as torchvision documents it."""

    def __call__(self, picture: Any) -> Tensor:
        """Give the tensor, float32."""
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float().div(255)


class Normalize:
    """Less the mean, by the deviation, channel by channel, as torchvision documents it."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def __call__(self, image: Tensor) -> Tensor:
        """Give the image normalised."""
        return (image - self.mean) / self.std


class NgramRule:
    """In place of SGLang's rule against repetition, which its processor only names."""

    @classmethod
    def to_str(cls) -> str:
        """Give its name."""
        return cls.__name__


def vllm(setup: Setup) -> ProcessorSubject:
    """Give vLLM's processor; raise ``DsocrError`` where its wheel is not unpacked on the path."""
    _stand_in()
    return subject(VLLM, setup)


def sglang(setup: Setup) -> ProcessorSubject:
    """Give SGLang's processor; raise ``DsocrError`` where its wheel is not unpacked on the path."""
    _stand_in()
    _module("sglang.srt.sampling.custom_logit_processor", DeepseekOCRNoRepeatNGramLogitProcessor=NgramRule)
    return subject(SGLANG, setup)


def _stand_in() -> None:
    from transformers.utils.import_utils import is_torchvision_available

    if not is_torchvision_available():  # asked first, as transformers would take a stand-in for the real one
        _module("torchvision")
        shown = {"Compose": Compose, "ToTensor": ToTensor, "Normalize": Normalize}
        _module("torchvision.transforms", **shown, InterpolationMode=None, functional=None)


def _module(name: str, **values: object) -> None:
    made = ModuleType(name)
    vars(made).update(values)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
