"""One case held against the reference: both sides asked, the limits chosen, the verdicts given, the cause looked for.

No pytest, no terminal, no files.
"""
