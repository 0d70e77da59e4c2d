"""Settings of torch that choose other kernels, in force only while the subject computes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.records.config import Setup
from tests.variants.changed import Variant, copied, with_pipeline

MATMUL = torch.backends.cuda.matmul


def reduced_precision_on(setup: Setup) -> Variant:
    """Let cuBLAS add up partial sums in bfloat16."""
    return within(setup, lambda: set_to(MATMUL, "allow_bf16_reduced_precision_reduction", True))


def reduced_precision_off(setup: Setup) -> Variant:
    """Have cuBLAS add up partial sums in float32."""
    return within(setup, lambda: set_to(MATMUL, "allow_bf16_reduced_precision_reduction", False))


def tf32(setup: Setup) -> Variant:
    """Let products of float32 round their factors to TF32."""
    return within(setup, _tf32)


def math_sdpa(setup: Setup) -> Variant:
    """Have PyTorch's fused attention take its plain kernel, which SAM and CLIP then run."""
    return within(setup, lambda: sdpa_kernel(SDPBackend.MATH))


def without_autocast(setup: Setup) -> Variant:
    """Compute in the weights' dtype throughout, where the vendor's ``infer`` opens autocast."""
    return copied(setup, autocast=False)


def within(setup: Setup, setting: Callable[[], AbstractContextManager[Any]]) -> Variant:
    """Load the engine, and have it compute each of its stages in a context of ``setting``."""

    class InSetting(Pipeline[Any]):
        """Opens the context around every stage."""

        @contextmanager
        def running(self, stage: str) -> Iterator[None]:
            with setting(), super().running(stage):
                yield

    return with_pipeline(copied(setup), InSetting)


@contextmanager
def set_to(owner: Any, name: str, value: bool) -> Iterator[None]:
    """Set an attribute, and put back what it was."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _tf32() -> Iterator[None]:
    with set_to(MATMUL, "allow_tf32", True), set_to(torch.backends.cudnn, "allow_tf32", True):
        yield
