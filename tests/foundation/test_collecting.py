"""What is imported is out of the collector's sight, and what is made later is not."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc, weakref
from pytest_dsocr.foundation.process import spare_what_is_imported

class Cycle:
    def __init__(self):
        self.itself = self

seen = len(gc.get_objects())
spare_what_is_imported()
left = len(gc.get_objects())
later = weakref.ref(Cycle())
spare_what_is_imported()
gc.collect()
print(left < seen / 10, later() is None)
"""


def test_what_is_there_is_spared_once_and_what_comes_later_is_collected() -> None:
    said = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "True"]
