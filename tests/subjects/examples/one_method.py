"""L0: one method, from a page to text. Any server, script or binary that reads pages can be put to the test so."""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.protocol import Setup


class OneMethod:
    """``--dsocr-subject=tests.subjects.examples.one_method:OneMethod``."""

    def __init__(self, setup: Setup) -> None:
        self.engine = Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens).text
