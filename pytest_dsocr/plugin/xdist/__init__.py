"""How pytest-xdist spreads the tests, and what becomes of those whose worker died."""
