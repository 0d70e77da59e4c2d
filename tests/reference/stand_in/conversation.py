"""The stand-in's prompt: see ``modeling_deepseekocr.py``."""

from pytest_dsocr.contract.prompt import render

__all__ = ["render"]
