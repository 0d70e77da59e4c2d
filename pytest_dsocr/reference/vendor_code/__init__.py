"""Use of the vendor's Python files in their own environment: import, build and observe the model.

This package contains none of the vendor's code; it is imported from a folder that the user names.
"""
