"""Run one case from start to end: both sides, limits, verdicts, explanation, drawing.

No pytest and no terminal. The plugin hands over its config and takes the result.
"""
