"""Run one case from start to end: both sides, limits, verdicts, explanation, drawing; no pytest and no terminal."""
