"""A decode step's kernels, in Triton: each reads its weights once, and rounds where the plain operations round.

A product of a matrix and one token's vector is limited by memory. So a program multiplies a few rows of the matrix and
reads the whole vector. It recomputes what came before the product, such as its norm, which is then never written.

Pointers are to contiguous tensors; sizes in capitals are compile-time constants. ``token`` is the batch's row.
"""
