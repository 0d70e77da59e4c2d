"""Python's garbage collector, spared what is there to stay."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_what_is_imported() -> None:
    """Take all that there is now out of the collector's sight, once in a process.

    torch alone brings some 200,000 objects, which every full collection goes through: ten at the end of a run of
    pytest's, and one as the process ends. To be called before anything is made that has to be collected one day.
    """
    gc.freeze()
