"""Hostile subjects, tests, conftests and files, and the threat model of ``docs/verdicts.md``."""
