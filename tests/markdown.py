"""The project's Markdown files: their blocks of code, tables, links and anchors."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.checkout import CHECKOUT

HOMES = (
    "https://raw.githubusercontent.com/pytest-dsocr/pytest-dsocr/main/",
    "https://github.com/pytest-dsocr/pytest-dsocr/blob/main/",
)
"""Address with which a package index resolves relative links."""
PAGES = (
    *(CHECKOUT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((CHECKOUT / "docs").glob("*.md")),
    *sorted((CHECKOUT / "golden").rglob("README.md")),
    *sorted((CHECKOUT / "ci").rglob("README.md")),
    *sorted((CHECKOUT / "pytest_dsocr").rglob("README.md")),
)


def text_of(page: Path | str) -> str:
    """Read a page, named by its path in the checkout."""
    return (CHECKOUT / page).read_text(encoding="utf-8")


def blocks(page: Path | str, language: str) -> list[str]:
    """Return the fenced blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def table(page: Path | str, header: str) -> list[list[str]]:
    """Return the rows of the one table whose first column is called ``header``, a text for each cell."""
    [found] = re.findall(rf"^\| {re.escape(header)} \|.*\n\| ---.*\n((?:\|.*\n)+)", text_of(page), re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" |")] for row in found.splitlines()]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield each link into the checkout, as a file and an anchor, which may be empty."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        for home in HOMES:
            if target.startswith(home):
                yield _split(CHECKOUT, target.removeprefix(home))
        if not re.match(r"[a-z]+:", target):
            yield _split(page.parent, target) if not target.startswith("#") else (page, target[1:])


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _split(folder: Path, target: str) -> tuple[Path, str]:
    path, _, anchor = target.partition("#")
    return folder / path, anchor
