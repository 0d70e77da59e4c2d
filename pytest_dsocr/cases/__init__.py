"""Judge one case: ask both sides, choose the limits, compare, and look for the cause of what is wrong.

No pytest, no terminal, no files.
"""
