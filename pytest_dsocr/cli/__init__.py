"""The commands behind ``dsocr``."""
