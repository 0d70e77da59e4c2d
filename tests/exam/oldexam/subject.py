"""An engine with one mistake of the exam as a subject: ``--dsocr-subject=oldexam.subject:HLD_27``."""

from __future__ import annotations

from pytest_dsocr.explain.planted import Planting
from oldexam import SETS, exam


def __getattr__(name: str) -> Planting:
    found = next((exam(one)[name.replace("_", "-")] for one in SETS if name.replace("_", "-") in exam(one)), None)
    if found is None:
        raise AttributeError(name)
    planting: Planting = globals().setdefault(name, Planting(found.put))
    return planting
