"""What a checkpoint may be called; imports nothing heavy, so that a name can be checked before torch is loaded."""

from __future__ import annotations

import re

MINI = "mini"
"""The embedded checkpoint's name; a folder that is called so as well is ``./mini``."""
SYNTHETIC_SIZES = ("tiny", "small", "full")
SYNTHETIC_NAME = re.compile(rf"synthetic:(?P<size>{'|'.join(SYNTHETIC_SIZES)})(@(?P<seed>\d+))?")
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
VALID_CHECKPOINT = (
    f"give {MINI}, a checkpoint's folder, synthetic:{', synthetic:'.join(SYNTHETIC_SIZES)}, or a hub name"
)
MINI_IS_FOR = (
    "it is for comparing implementations on the shipped pages, not for reading: of other pages it invents text"
)
