"""The fast engine: the same weights and seams, with decode steps over a static cache, fused and captured.

On a GPU a step is one CUDA graph, of Triton kernels where the triton package is installed. Everywhere else the same
step runs in plain torch. Only the readable engine equals the vendor's code to the bit.
"""
