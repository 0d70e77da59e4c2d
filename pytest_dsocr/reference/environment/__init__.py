"""The environment that the vendor's code needs: which packages, where it is, and how it is made.

It is made by Python's own venv and pip, which could be typed by hand. What is added here: the versions that both sides
must share, torch reused from the caller, a check of what is really imported, and an interrupted setup that is never
taken for a complete one. Nothing here imports the vendor's code.
"""
