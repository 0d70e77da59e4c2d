"""Checks of a machine before a run: each yields findings, with advice where something is missing."""
