"""Subjects that sleep and read the same text, and subjects that misbehave while they are measured.

Nothing really sleeps: a clock of their own advances instead, independent of the machine.
"""

import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.timing.probe import machine
from tests.timing.made import Clock

PAGE_S, STEP_S = 0.02, 0.004
TEXT = "a page"


CLOCK = Clock()
time.perf_counter_ns = CLOCK.perf_counter_ns
machine._waited_ns = lambda: 0


class Sleeping:
    """Subject of L0 that sleeps."""

    page_s = PAGE_S

    def read(self, page: Path, *, prompt: str, preset: Any, max_new_tokens: int) -> str:
        CLOCK.sleep(self.page_s)
        return TEXT


class Slower(Sleeping):
    page_s = PAGE_S * 1.5


class Unlucky(Sleeping):
    """Subject that takes 10 % longer in its first process, by the count in the file that STARTS names."""

    def __init__(self) -> None:
        with Path(os.environ["STARTS"]).open("a+") as starts:
            starts.seek(0)
            self.page_s = PAGE_S * (1 if starts.read() else 1.1)
            starts.write("started\n")


class SlightlySlower(Sleeping):
    page_s = PAGE_S * 1.1


class Other(Sleeping):
    def read(self, page: Path, **how: Any) -> str:
        return super().read(page, **how) + " of another text"


class Raising(Sleeping):
    def read(self, page: Path, **how: Any) -> str:
        raise RuntimeError("out of luck")


class Crashing(Sleeping):
    """Subject that ends its process in the fourth reading."""

    def __init__(self) -> None:
        self.reads = itertools.count(1)

    def read(self, page: Path, **how: Any) -> str:
        if next(self.reads) > 3:
            os.write(2, b"cannot go on\n")
            os._exit(7)
        return super().read(page, **how)


class Hanging(Sleeping):
    def read(self, page: Path, **how: Any) -> str:
        time.sleep(6000)
        return TEXT


class Staged:
    """Subject of L2 that sleeps instead of working."""

    step_s = STEP_S
    policy = SimpleNamespace(eos_id=1)

    def read(self, page: Path, *, prompt: str, preset: Any, max_new_tokens: int) -> str:
        CLOCK.sleep(PAGE_S + self.step_s * max_new_tokens)
        return TEXT

    def inputs(self, page: Path, *, prompt: str, preset: Any) -> dict[str, Tensor]:
        return {"input_ids": torch.zeros(1, 8, dtype=torch.long)}

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        CLOCK.sleep(PAGE_S / 2)
        return {"vision_fusion": torch.zeros(4, 2)}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> SimpleNamespace:
        CLOCK.sleep(PAGE_S / 2)
        return SimpleNamespace(logits=torch.zeros(4))

    def step(self, state: Any, token: int) -> Tensor:
        CLOCK.sleep(self.step_s)
        return torch.zeros(4)


class StagedSlower(Staged):
    step_s = STEP_S * 1.5


class StagedOther(StagedSlower):
    """Subject that ends its text at the first token, if nobody tells it other tokens."""

    ending = torch.tensor([0.0, 1.0])

    def read(self, page: Path, **how: Any) -> str:
        return super().read(page, **how) + " of another text"

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> SimpleNamespace:
        super().prefill(inputs, vision_fusion)
        return SimpleNamespace(logits=self.ending)
