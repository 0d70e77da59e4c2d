"""Correct implementations that compute in other ways than the engine; no part of the tool may call one of them wrong.

``python -m tests.variants`` runs the suites on each of them; :mod:`tests.variants.table` lists them.
"""
