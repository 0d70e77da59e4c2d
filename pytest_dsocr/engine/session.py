"""The former place and name of :class:`pytest_dsocr.engine.engine.Engine`, kept for one version."""

from __future__ import annotations

from pytest_dsocr.engine.engine import Engine as Session

__all__ = ["Session"]
