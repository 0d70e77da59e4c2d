"""The stand-in's prompt: see ``modeling_deepseekocr.py``."""

from __future__ import annotations

from pytest_dsocr.contract.prompt import render

__all__ = ["render"]
