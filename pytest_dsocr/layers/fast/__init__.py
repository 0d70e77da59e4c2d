"""The shared encoder's faster form, and the means that fast forms share: CUDA graphs, and hooks called from outside."""
