"""Evaluation pages that do not come from the generator: set by reportlab, rasterised by pypdfium2.

The embedded checkpoint has never seen their fonts, nor anything of the engine that drew them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ci.training.page import Page
from pytest_dsocr.foundation.errors import DsocrError

A4, A4_WIDE, SQUARE, STRIP = (595.0, 842.0), (842.0, 595.0), (600.0, 600.0), (295.0, 850.0)
"""Width and height in points. Stretched over its grid of crops, each has 2.1 to 2.3 px a point."""
HELVETICA, TIMES, COURIER = "Helvetica", "Times-Roman", "Courier"


@dataclass(frozen=True)
class Setting:
    """A page to be set: its kind, seed, font and size, and the dots per inch that it is rasterised at.

    ``body_pt`` is the size of its running text; colours are written ``#rrggbb``.
    """

    kind: str
    seed: int
    font: str
    size_pt: tuple[float, float]
    dpi: int
    body_pt: float = 17
    ink: str = "#1a1a1a"
    paper: str = "#ffffff"

    @property
    def name(self) -> str:
        """The kind and the font's family."""
        return f"{self.kind}_{self.font.partition('-')[0].lower()}".replace(" ", "_")


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("article", 1, HELVETICA, A4, 144),
        Setting("two columns", 2, HELVETICA, A4, 150, ink="#10203c"),
        Setting("letter", 3, HELVETICA, A4, 132, body_pt=18),
        Setting("invoice", 4, HELVETICA, A4, 140, ink="#222222"),
        Setting("slide", 5, HELVETICA, A4_WIDE, 144, body_pt=19, ink="#1f2a44", paper="#f7f3e8"),
        Setting("figures", 6, HELVETICA, A4, 160),
        Setting("list", 7, HELVETICA, SQUARE, 150, body_pt=18),
        Setting("receipt", 8, HELVETICA, STRIP, 150, ink="#333333"),
        Setting("slide", 9, TIMES, A4_WIDE, 132, body_pt=20),
        Setting("letter", 10, TIMES, A4, 150, body_pt=18),
        Setting("invoice", 11, COURIER, A4, 144),
        Setting("list", 12, COURIER, SQUARE, 144, body_pt=18),
    )
}
"""The typeset set by name."""


def typeset(name: str) -> Page:
    """Set the page of that name in ``SETTINGS``, the same each time.

    Raises:
        DsocrError: where there is no such page, or the extra ``typeset`` is not installed.
    """
    if name not in SETTINGS:
        raise DsocrError(f"there is no typeset page {name!r}; give one of {', '.join(SETTINGS)}")
    try:
        from ci.training.typeset.kinds import set_page
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise DsocrError(f"setting pages needs {package}; pip install 'pytest-dsocr[typeset]'") from None
    return set_page(SETTINGS[name])
