"""The picture of a case: its page with the boxes of both sides, in a file of the run's folder."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.report.payload import picture_name
from pytest_dsocr.report.side_by_side import side_by_side


def draw(report: CaseReport, folder: Path) -> Path:
    """Draw a case into ``folder``, and give the file.

    Raises:
        DsocrError: where it cannot be written.
    """
    exchange, path = report.exchange, folder / picture_name(report.case.id)
    page = load_image(report.case.page)
    picture = side_by_side(page, exchange.expected.output.spans, exchange.answer.spans, str(report.verdict))
    content = BytesIO()
    picture.save(content, "JPEG", quality=90)
    write_whole(path, content.getvalue(), shared=True)
    return path
