"""Ways into implementations of others that are processes of their own, one file each: a command, a server.

Each is a module with ``check`` and ``subject``, and is imported when a subject's name begins with its word
(:mod:`pytest_dsocr.subjects.ways`).
"""
