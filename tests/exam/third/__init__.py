"""Forty mistakes of porters, written by someone who had not read the checks."""

from __future__ import annotations

from typing import Any

import pytest


def instead(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Any) -> None:
    """Have another function run in place of ``owner.name``, which it is given first."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: change(right, *args, **options))
