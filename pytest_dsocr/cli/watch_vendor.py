"""``dsocr watch-vendor``: whether the vendor's files have changed, and what that affects."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.reference.drift import change_of
from pytest_dsocr.reference.goldens import anchors_file, golden_folder, recording_places
from pytest_dsocr.report.markdown import change_lines, change_markdown


def run(options: Namespace) -> Iterator[str]:
    """Yield what has changed. The status is 1 where anything has.

    Raises:
        DsocrError: where the vendor's files, the anchors or a recording cannot be read, or the Markdown not be written.
    """
    places = recording_places(options.golden or golden_folder())
    change = change_of(options.vendor, options.anchors or anchors_file(), places)
    options.status = int(not change.is_none)
    yield from change_lines(change)
    if options.markdown:
        write_whole(options.markdown, change_markdown(change).encode("utf-8", "replace"))
        yield f"{'written':<16}{options.markdown}"
