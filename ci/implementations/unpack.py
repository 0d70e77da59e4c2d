"""Unpack the named files of the wheel in ``wheels`` to ``unpacked``."""

import sys
import zipfile
from pathlib import Path

[wheel] = Path("wheels").glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall("unpacked", sys.argv[1:])
