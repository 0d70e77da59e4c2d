"""Which seeds' pages are trained on, and which are kept to judge by."""

from __future__ import annotations

HELD_OUT_SEEDS = range(10_000)
"""Of pages that no training sees."""
FIRST_TRAINING_SEED = 1_000_000
"""Training takes seeds from here on."""
