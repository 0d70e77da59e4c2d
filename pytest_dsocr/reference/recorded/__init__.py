"""Recordings of the vendor's code, in its place: their files, how they are made, found, verified and asked.

Nothing here runs a model, and no recording is repaired: what is not complete is an error.
"""
