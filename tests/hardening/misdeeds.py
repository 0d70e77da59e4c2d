"""A subject that misbehaves as the environment variable ``MISDEED=stage:deed`` says.

A running process reads the same words from the file ``MISDEED_FILE``. On a page with a name that starts with ``good``
the subject behaves. This module imports no other test code, because tests copy it into repositories of their own.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.contract.presets import Preset

TEXT = "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nMinutes"
FOREVER_S, VOCABULARY = 600, 8


class UnspeakableError(Exception):
    """An exception without a message: ``str`` of it raises."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class Rude(BaseException):
    """An exception that is no error."""


def raising(error: BaseException) -> Callable[[], None]:
    def deed() -> None:
        raise error

    return deed


def loop() -> None:
    until = time.monotonic() + FOREVER_S
    while time.monotonic() < until:
        pass


def deaf() -> None:
    """Ignore every interruption."""
    until = time.monotonic() + FOREVER_S
    while time.monotonic() < until:
        with suppress(BaseException):
            time.sleep(FOREVER_S)


def wait_in_c() -> None:
    """Lock a mutex of the C library twice, with Python's own lock held: no signal wakes it."""
    c, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    c.pthread_mutex_init(mutex, None)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)


def close_everything() -> None:
    os.closerange(3, 4096)


DEEDS: Mapping[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "sleep": lambda: time.sleep(FOREVER_S),
    "loop": loop,
    "lock": lambda: [lock.acquire() for lock in [threading.Lock()] * 2],
    "deaf": deaf,
    "c with the lock": wait_in_c,
    "exit 0": lambda: os._exit(0),
    "exit 3": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "close everything": close_everything,
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "system exit": lambda: sys.exit(0),
    "skip": lambda: pytest.skip("not today"),
    "exit": lambda: pytest.exit("not today", 0),
    "generator exit": raising(GeneratorExit()),
    "unspeakable": raising(UnspeakableError()),
    "rude": raising(Rude("go away")),
    "many lines": lambda: raising(ValueError("line\n" * 400_000))(),
    "escapes": raising(ValueError("\x1b[2J\x1b]0;title\x07\rgone")),
    "chdir": lambda: os.chdir("/"),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "grad": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "path": lambda: sys.path.insert(0, "/nowhere"),
    "environment": lambda: os.environ.update(NEW_VARIABLE="1"),
}


def do(stage: str, page: Path | None = None) -> str:
    """Do the deed of a stage, if there is one, and return its name."""
    file = os.environ.get("MISDEED_FILE")
    said = Path(file).read_text() if file else os.environ.get("MISDEED", "")
    where, _, deed = said.partition(":")
    if where != stage or (page and page.stem.startswith("good")):
        return "nothing"
    if file:
        Path(f"{file}.begun").touch()
    DEEDS.get(deed, DEEDS["nothing"])()
    return deed


class Reader:
    """Subject of L0."""

    def __init__(self) -> None:
        do("load")

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        do("read", page)
        return TEXT

    def close(self) -> None:
        do("close")


class Staged(Reader):
    """Subject of L2 with ``text_of``, ``write`` and meaningless tensors."""

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        values = {
            "input_ids": torch.tensor([[0, 1, 1]]),
            "images_seq_mask": torch.tensor([[False, True, True]]),
            "images_spatial_crop": torch.tensor([[1, 1]]),
            "images_crop": torch.zeros(1, 3, 4, 4),
            "images_ori": torch.ones(1, 3, 4, 4, dtype=torch.bfloat16),
        }
        do("tokenizer", page)
        return values

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        do("vision")
        return {"vision_fusion": torch.ones(2, 4)}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        do("prefill")
        cache = SimpleNamespace(length=3, layers=1, keys=self._keys, values=self._keys)
        return SimpleNamespace(logits=torch.arange(float(VOCABULARY)), cache=cache, pixels=inputs["images_ori"])

    def step(self, state: Any, token: int) -> Tensor:
        seen = state.pixels.sum() if do("decode") == "peek" else 0.0
        state.logits = state.logits.roll(1) + seen
        return torch.as_tensor(state.logits)

    def text_of(self, token_ids: list[int]) -> str:
        do("postprocess")
        return TEXT

    def write(self, text: str, page: Path, folder: Path) -> None:
        do("postprocess")
        (folder / "result.mmd").write_text("Minutes")

    def _keys(self, layer: int) -> Tensor:
        return torch.zeros(1, 1, 3, 2)


do("import")
