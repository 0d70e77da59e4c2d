"""The vendor's Python files behind the project's seams: imported, built, watched. Runs in the vendor's own environment.

None of the vendor's code is in this package; it is imported from a folder that the user names.
"""
