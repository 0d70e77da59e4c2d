"""Whether the subject got slower, and what costs that need not: timed on the run's first page, in rounds.

Times are judged against the baseline of this machine; red flags and counts need none. Not for ``-n``: see
``docs/performance.md``.
"""
