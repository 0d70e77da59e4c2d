"""Pages with the boxes of the truth and of a checkpoint's reading: ``python -m ci.training.picture``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from ci.training.page import Page
from ci.training.quality import PageQuality, measure
from ci.training.reading import CEILING, open_page, truth_of
from ci.training.seeds import HELD_OUT_SEEDS
from ci.training.telling import tell
from pytest_dsocr.contract.drawing import Stroke, draw_boxes, draw_outline
from pytest_dsocr.contract.markup import Markup, PixelBox, to_pixels
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.engine.session import Session
from pytest_dsocr.foundation.errors import DsocrError

COLUMNS, ROWS = 3, 2
PANE_PX = (584, 640)
MARGIN_PX, HEAD_PX, FONT_PX = 12, 28, 16
PAPER, INK, TRUTH = (236, 236, 236), (32, 32, 32), (255, 176, 0)


def draw_reading(page: Page, answer: Markup) -> Image.Image:
    """Draw the truth's boxes as amber frames around them, and the answer's over them with their labels."""
    drawn = page.image.convert("RGB")
    pen = ImageDraw.Draw(drawn)
    width_px = max(drawn.size) // 160
    for span in truth_of(page, "markdown").spans:
        for box in span.boxes:
            x1, y1, x2, y2 = to_pixels(box, *drawn.size)
            around = PixelBox(x1 - width_px, y1 - width_px, x2 + width_px, y2 + width_px)
            draw_outline(pen, around, Stroke(TRUTH, width_px))
    return draw_boxes(drawn, answer.spans)


def contact_sheet(panes: Sequence[tuple[str, Image.Image]], foot: str) -> Image.Image:
    """Lay pictures out under their titles, three to a row, with a line below them all."""
    rows = -(-len(panes) // COLUMNS)
    width, height = (side + MARGIN_PX for side in (PANE_PX[0], PANE_PX[1] + HEAD_PX))
    sheet = Image.new("RGB", (COLUMNS * width + MARGIN_PX, rows * height + HEAD_PX + MARGIN_PX), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT_PX)
    for k, (title, picture) in enumerate(panes):
        left, top = MARGIN_PX + k % COLUMNS * width, k // COLUMNS * height
        pen.text((left, top + (HEAD_PX - FONT_PX) // 2), title, INK, font)
        shown = ImageOps.contain(picture, PANE_PX, Image.Resampling.LANCZOS)
        sheet.paste(shown, (left + (PANE_PX[0] - shown.width) // 2, top + HEAD_PX))
    pen.text((MARGIN_PX, sheet.height - HEAD_PX), foot, INK, font)
    return sheet


def different_pages(count: int) -> Iterator[Page]:
    """Yield the first held-out page of each kind; raise ``DsocrError`` where there are fewer than ``count`` kinds."""
    kinds: set[str] = set()
    for seed in HELD_OUT_SEEDS:
        _, page = open_page(seed)
        if page.kind not in kinds:
            kinds.add(page.kind)
            yield page
        if len(kinds) == count:
            return
    raise DsocrError(f"the held-out pages are of {len(kinds)} kinds; ask for no more than that")


def picture(options: argparse.Namespace) -> Iterator[str]:
    """Read six pages of different kinds, draw them, and write them to ``options.out``."""
    checkpoint, panes = resolve(options.checkpoint), []
    session = Session.from_checkpoint(options.checkpoint)
    for page in different_pages(COLUMNS * ROWS):
        result = session.run(page.image, max_new_tokens=CEILING)
        found = measure(truth_of(page, "markdown"), result.markup, ended=result.finish_reason == "eos")
        yield f"{page.kind:<16}{_told(found)}"
        panes.append((f"{page.kind}: {_told(found)}", draw_reading(page, result.markup)))
    sheet = contact_sheet(panes, f"amber: where the blocks are; other colours: what {checkpoint.label} found, by label")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(options.out, "PNG", optimize=True)
    yield f"written     {options.out}, {sheet.width} x {sheet.height} px, {options.out.stat().st_size / 1000:.0f} kB"


def _told(quality: PageQuality) -> str:
    characters = quality.title_characters + quality.text_characters
    right = 1 - (quality.title_errors + quality.text_errors) / characters if characters else 1.0
    boxes = f"{quality.good_boxes} of {quality.true_boxes} boxes found, {quality.answered_boxes} given"
    return f"{boxes}, {100 * max(0.0, right):.0f} % of text right"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.training.picture",
        description="Six held-out pages, with the boxes of the truth and of a checkpoint's reading.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--checkpoint", default=MINI, help="a name or a folder")
    parser.add_argument("--out", type=Path, default=Path("dsocr-out/reading.png"), help="the picture's file")
    return tell(picture(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
