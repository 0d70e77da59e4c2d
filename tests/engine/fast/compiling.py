"""Kernels compiled for a GPU that need not be there.

By a process of its own, as Triton's interpreter is chosen when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys

H200 = "90"
"""Its compute capability."""


def compiled_by(module: str) -> list[str]:
    """Run a module that compiles kernels for an H200; give the names that it prints, one for each."""
    done = subprocess.run(
        [sys.executable, "-m", module, H200],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
