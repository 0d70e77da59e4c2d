"""The NVTX-segmented implementation in plain PyTorch, one stage a module."""
