"""Recordings of the vendor's code, in its place."""
