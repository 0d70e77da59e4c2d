"""Many pages in one process: tokens and pages a second, and whether each page is what it is alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

from pytest_dsocr.engine.fast.batch import PageBatch
from pytest_dsocr.engine.session import Session
from pytest_dsocr.pages.page_list import shipped

PAGES_A_ROW = 2
"""So that pages join while others are read."""


def batches(session: Session[Any], rows: Sequence[int], tokens: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield, for each number of rows, tokens a second while decoding, and pages a second from image to text."""
    pages = list(islice(cycle(shipped("dev-20")), max(rows) * PAGES_A_ROW))
    alone = {page: session.run(page, max_new_tokens=tokens).token_ids for page in dict.fromkeys(pages)}
    session.stages.instrument = "timed"
    for count in rows:
        batch, asked = PageBatch(session, count), pages[: count * PAGES_A_ROW]
        batch.read_many(asked[: count + 1], max_new_tokens=min(tokens, 20))
        began_s = time.perf_counter()
        results = batch.read_many(asked, max_new_tokens=tokens)
        took_s = time.perf_counter() - began_s
        read = sum(len(result.token_ids) for result in results)
        decoding_s = results[0].stage_times["decode"].total_ms / 1e3
        equal = sum(result.token_ids == alone[page] for page, result in zip(asked, results, strict=True))
        yield (
            f"{count} rows",
            {
                "tokens a second": (read - len(results)) / decoding_s,
                "pages a second": len(asked) / took_s,
                "as alone": equal,
                "of": len(asked),
            },
        )
