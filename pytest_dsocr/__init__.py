"""Tells whether a DeepSeek-OCR implementation is the vendor's model, and which stage broke first."""

__version__ = "0.1.0"
