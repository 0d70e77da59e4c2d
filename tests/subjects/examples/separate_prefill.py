"""L2: right stage by stage, but ``read`` prefills the prompt a second time, without what vision has seen.

A model that a loop of its own was put around for the sake of NVTX ranges or timings came out so: it printed one box
where the page has many.
"""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.contract.presets import Preset
from tests.subjects.examples.staged import Staged


class SeparatePrefill(Staged):
    """Its stages are the vendor's, and nobody reads through them."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        inputs = self.inputs(page, prompt=prompt, preset=preset)
        self.vision(inputs)
        return self.decode(inputs, self.prefill(inputs, None), max_new_tokens)
