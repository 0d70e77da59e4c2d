"""The engine: the NVTX-segmented implementation in plain PyTorch, with one stage in each module.

It does not depend on subjects, references or tests.
"""
