"""Parts of the scripts that show a difference without this package: a frame, and the vendor's rule for one stage.

They import torch, numpy and Pillow alone. :mod:`pytest_dsocr.explain.reproducer` joins them.
"""
