"""Blocks that several models share: SAM, attention, rotary positions, norms, experts and the key-value cache."""
