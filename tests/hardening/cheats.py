"""A subject that looks for the reference's answers, or works on the tool, instead of reading a page."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:
        return type(error).__name__
    return "done"


def goldens(found: str) -> dict[str, str]:
    """Read a file of a recording by Python, by Rust, and by a program."""
    done = subprocess.run(["cat", found], capture_output=True, check=False)
    return {
        "python": _outcome(Path(found).read_bytes),
        "rust": _outcome(lambda: safe_open(found, "pt")),
        "program": "done" if done.stdout else "nothing",
    }


def patch(name: str) -> dict[str, str]:
    """Replace a function of the tool in this process."""
    module, _, function = name.partition(":")

    def replace() -> None:
        __import__(module)
        setattr(sys.modules[module], function, None)

    return {"patched": _outcome(replace)}


def surroundings(_: str) -> dict[str, str]:
    """List the variables of this process."""
    return dict(os.environ)


class Cheat:
    """A subject that answers a prompt ``ATTEMPT ARGUMENT`` with the outcome of that attempt."""

    def read(self, page: Path, *, prompt: str, preset: Any, max_new_tokens: int) -> str:
        attempt, _, argument = prompt.partition(" ")
        return json.dumps({"goldens": goldens, "patch": patch, "surroundings": surroundings}[attempt](argument))
