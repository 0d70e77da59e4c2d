"""Hints as data: for each, the mistakes that it is right for, and those that it misled on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_dsocr.compare.symptoms import SYMPTOMS
from pytest_dsocr.compare.symptoms.scene import Symptom
from tests.faults.outcome import Outcome


@dataclass(frozen=True)
class Told:
    """A hint, and the ids of the mistakes that it was told for."""

    symptom: Symptom
    right: tuple[str, ...]
    misled: tuple[str, ...]


def hints_told(outcomes: Sequence[Outcome]) -> list[Told]:
    """Give every hint, told or not, in the order in which they are looked through."""
    found = []
    for symptom in SYMPTOMS:
        words = re.escape(symptom.cause).replace(re.escape("{depth}"), r"\d+") + "$"
        told = [one for one in outcomes if re.search(words, one.hint)]
        right = tuple(one.fault for one in told if one.hint_right)
        found.append(Told(symptom, right, tuple(one.fault for one in told if not one.hint_right)))
    return found
