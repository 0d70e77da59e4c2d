"""The subject's FLOPs, counted on white pages of any size."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.contract.prompt import render
from pytest_dsocr.cost.differences import with_those_around
from pytest_dsocr.cost.model import parameters
from pytest_dsocr.cost.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.engine.architecture import Architecture
    from pytest_dsocr.perf.probe.flops import Flops


@dataclass(frozen=True)
class Counted:
    """One page up to its first token."""

    work: Workload
    vision: Flops
    prefill: Flops
    state: Any
    """Where decoding stands."""


@dataclass(frozen=True)
class Scales:
    """Counts what the subject computes."""

    subject: Any
    """Of any level for a whole page; of L2 for its stages."""
    arch: Architecture
    """The checkpoint's, and no word of the subject's."""
    tokenizer: TextTokenizer
    folder: Path
    """Where the pages' files go."""

    def work(self, page_px: tuple[int, int], prompt: str, preset: str, tokens: int = 1) -> Workload:
        """Return what a page of that size is."""
        return Workload.of_prompt(page_px, prompt, preset, self.tokenizer, generated_tokens=tokens)

    def begin(self, page_px: tuple[int, int], prompt: str, preset: str) -> Counted:
        """Run the stages of a page up to its first token."""
        work = self.work(page_px, prompt, preset)
        inputs = self.subject.inputs(self._page(page_px), prompt=render(prompt), preset=work.preset)
        given = _copied(inputs)
        with self.counting() as vision:
            features = self.subject.vision(inputs)["vision_fusion"]
        with self.counting() as prefill:
            state = self.subject.prefill(given, features)
        return Counted(work, vision, prefill, state)

    def read(self, work: Workload, prompt: str) -> Flops:
        """Read a page as the subject does it by itself."""
        page, tokens = self._page(work.page_px), work.generated_tokens
        with self.counting() as whole:
            self.subject.read(page, prompt=render(prompt), preset=work.preset, max_new_tokens=tokens)
        return whole

    def counting(self) -> AbstractContextManager[Flops]:
        """Count what runs within, and within the modules that the subject shows."""
        from pytest_dsocr.perf.probe.flops import counted_flops

        return counted_flops(self._modules)

    @cached_property
    def _modules(self) -> Mapping[str, nn.Module]:
        from pytest_dsocr.perf.probe.walk import module_of

        names = sorted(with_those_around(parameters(self.arch)))
        found = {name: module_of(self.subject, name) for name in names}
        return {name: module for name, module in found.items() if hasattr(module, "register_forward_hook")}

    def _page(self, page_px: tuple[int, int]) -> Path:
        from PIL import Image

        path = self.folder / "{}x{}.png".format(*page_px)
        if not path.exists():
            Image.new("RGB", page_px, "white").save(path, compress_level=1)
        return path


def _copied(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A subject may overwrite what it is given."""
    return {name: tensor.clone() for name, tensor in inputs.items()}
