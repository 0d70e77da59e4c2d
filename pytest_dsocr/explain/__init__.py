"""Explanations of failures: the search for a known mistake with which the engine does what the subject did."""
