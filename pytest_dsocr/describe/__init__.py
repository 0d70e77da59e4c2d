"""Measured relations between the subject's values and the expected ones, verified on other values."""
