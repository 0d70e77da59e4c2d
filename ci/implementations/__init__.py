"""Other people's implementations, each run by one command: ``python -m ci.implementations NAME``; see its README."""
