"""Frame of each script."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from pytest_dsocr.explain.reproducers.values import rule

DATA: dict[str, Any] = dict(np.load(Path(__file__).with_name("data.npz")))


def port(given: Any) -> Any:
    """Return what the port gives for the input, or None if that was too large; replace the next line by its call."""
    return DATA["actual"]  # <- numpy, torch or text


def main() -> int:
    """Print the difference; return 0 if there is none."""
    expected, limit = np.asarray(rule(DATA)), float(DATA["limit"])
    found = port(DATA.get("input"))
    found = found.detach().float().cpu().numpy() if hasattr(found, "detach") else found
    actual = np.array(list(found)) if isinstance(found, str) else np.asarray(found)
    if "rows" in DATA and actual.shape == tuple(DATA["shape"]):  # the whole output, and a sample is kept
        actual = actual.reshape(-1, actual.shape[-1])[DATA["rows"]]
    ends = [min(sizes) for sizes in zip(expected.shape, actual.shape, strict=False)]
    right, own = (one[tuple(map(slice, ends))] for one in (expected, actual))
    differ = right != own if limit == 0 else ~(np.abs(own - right) <= limit * np.abs(right).max())
    error = float(differ.mean()) if limit == 0 else float(np.linalg.norm(own - right) / np.linalg.norm(right))
    print(f"expected {list(expected.shape)}, actual {list(actual.shape)}; error {error:.3e}, allowed {limit:.0e}")
    if differ.any():
        first = tuple(np.argwhere(differ)[0].tolist())
        print(f"first at {list(first)}: expected {right[first]}, actual {own[first]}")
    return int(expected.shape != actual.shape or not error <= limit)


if __name__ == "__main__":
    sys.exit(main())
