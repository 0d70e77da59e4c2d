"""Code that runs in the process of the measured implementation, which may have another version of this package.

Modules here import only ``pytest_dsocr.timing.probe`` from ``pytest_dsocr``, except to load a subject.
"""
