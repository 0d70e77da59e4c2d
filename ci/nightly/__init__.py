"""Every night on a machine with GPUs: the suites, part by part in order of worth, into one folder of results.

    python -m ci.nightly nightly.toml

Each part is a ``dsocr`` of its own, which runs pytest; here is only what comes next, what still fits, and what is done.
"""
