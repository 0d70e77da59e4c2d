"""Pipelines, and what they run on GPU machines."""
