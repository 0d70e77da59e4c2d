"""Prints the lowest versions that pyproject promises to work with, as constraints for pip."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRA = "test"
PINNED = ("torch",)
"""Named by tox for all of its environments: of older ones there may be no build for the CPU where CI gets them."""


def lowest(pyproject: Path) -> Iterator[str]:
    """Yield each requirement, of the package and of its tests, at its lower bound."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    for line in (*project["dependencies"], *project["optional-dependencies"][EXTRA]):
        requirement = Requirement(line)
        [bound] = requirement.specifier
        if requirement.name not in PINNED:
            yield f"{requirement.name}=={bound.version}"


if __name__ == "__main__":
    print(*lowest(PYPROJECT), sep="\n")
