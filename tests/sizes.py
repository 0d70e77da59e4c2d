"""Dimensions of the checkpoints of random weights, by name."""

from pytest_dsocr.engine.places import SYNTHETIC_SIZES, architecture_of

SYNTHETIC = {name: architecture_of(f"synthetic:{name}") for name in SYNTHETIC_SIZES}
