"""The stand-in's configuration: see ``modeling_deepseekocr.py``."""

from typing import Any

from pytest_dsocr.models.architecture import Architecture


class DeepseekOCRConfig:
    """A ``config.json``, as the engine reads it."""

    def __init__(self, *, attn_implementation: str, **config: Any) -> None:
        assert attn_implementation == "eager", "the stand-in has no other attention"
        self.architecture = Architecture.from_config(config)
