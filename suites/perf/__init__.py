"""Times and counts of the subject on the run's first page.

Times are compared with this machine's baseline; red flags and counts need none. Do not run this suite with ``-n``; see
``docs/performance.md``.
"""
