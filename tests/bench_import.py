"""What the plugin adds to a bare pytest, and what the product suites add to collect, each in turn with the others.

Run by hand on a quiet machine, from the checkout: python -m tests.bench_import
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TURNS = 10
PYTEST = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
ROOMS = ("contract", "parity", "cache", "checkpoint", "reference")
SUITES = [str(Path(__file__).parents[1] / "suites" / name) for name in ROOMS]
WAYS = {
    "python": ("-c", "pass"),
    "pytest imported": ("-c", "import pytest"),
    "the plugin imported": ("-c", "import pytest, pytest_dsocr.plugin.hooks"),
    "an empty test without the plugin": (*PYTEST, "-p", "no:dsocr", "test_nothing.py"),
    "an empty test with the plugin": (*PYTEST, "test_nothing.py"),
    "the suites": (*PYTEST, "--dsocr-pages", "dev-20", *SUITES),
}


def main() -> None:
    """Take the turns, and print the median of each way."""
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing(): pass")
        for _ in range(TURNS):
            for way, arguments in WAYS.items():
                taken[way].append(wall_ms(arguments, folder))
    for way, all_ms in taken.items():
        print(f"{way:<36}{statistics.median(all_ms):8.0f} ms   {min(all_ms):6.0f} to {max(all_ms):.0f}")  # noqa: T201


def wall_ms(arguments: Sequence[str], folder: str) -> float:
    """Give how long one process of Python takes; raise ``CalledProcessError`` where it fails."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=True)
    return 1000 * (time.perf_counter() - started)


if __name__ == "__main__":
    main()
