"""The session: the NVTX-segmented implementation in plain PyTorch, one stage a module.

It knows nothing of subjects, references or tests.
"""
