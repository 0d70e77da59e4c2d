"""The subject in a process of its own, whose loss does not end the run: its process, the pipe, and its stand-in here.

Nothing here knows what a subject's methods mean beyond the protocol in :mod:`pytest_dsocr.subjects.protocol`.
"""
