"""Checks of requests with another number of images than the prompt has places: two images, and a typed mark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.prompt import IMAGE

from .asked import MANY, Asked, apart, judged, not_offered
from .counts import NEAR

if TYPE_CHECKING:
    from pytest_dsocr.adapters.completion import Completion
    from pytest_dsocr.records.case import Case

UNSURE = "usage.prompt_tokens, which shows how many images the server read"


def two_images(asked: Asked) -> Comparison:
    """Send two images in one request: both must be counted, or the request refused."""
    first, second = asked.odd["plain"], asked.odd["641_wide"]

    def expected() -> int | None:
        alone = [asked(case).prompt_tokens for case in (first, second)]
        bare = asked(first, 1, messages=[{"role": "user", "content": _text(first)}]).prompt_tokens
        return None if None in (*alone, bare) else sum(one or 0 for one in alone) - (bare or 0)

    return _compared(asked, "two_images", expected, "that no image is dropped", more=(second.page,))


def typed_mark(asked: Asked) -> Comparison:
    """Send one image and a text with a typed mark: it must be read as text, or the request refused."""
    text = f"{_text(asked.odd['plain'])} {IMAGE}"
    check = "that a mark which a user types is no place for an image"
    return _compared(asked, "typed_mark", lambda: asked(asked.odd["plain"]).prompt_tokens, check, text=text)


def _text(case: Case) -> str:
    return case.prompt.replace(IMAGE, "").strip()


def _compared(
    asked: Asked, what: str, expected: Callable[[], int | None], check: str, more: tuple[Path, ...] = (), text: str = ""
) -> Comparison:
    """Compare the answer's count of tokens with the expected one, and a page after it with the page before."""
    from pytest_dsocr.adapters.completion import FAILED

    page = asked.odd["plain"]
    before = asked(page)
    answer = _answered(asked, page, more, text)
    faults = apart("the page after it", asked.server.ask(replace(page, max_new_tokens=MANY)), before)
    if isinstance(answer, int):
        faults = [*[f"answered with status {answer}"] * (answer >= FAILED), *faults]
        return judged(what, faults, f"refused with status {answer}", check)
    actual, count = answer.prompt_tokens, expected()
    if actual is None or count is None:
        return judged(what, faults, "", check) if faults else not_offered(what, UNSURE)
    if abs(actual - count) > NEAR:
        faults = [f"{actual} tokens counted, expected about {count}", *faults]
    return judged(what, faults, f"{actual} tokens counted, about as many as expected", check)


def _answered(asked: Asked, page: Case, more: tuple[Path, ...], text: str) -> Completion | int:
    """Return the answer, or the status of its refusal."""
    from pytest_dsocr.adapters.completion import OverloadedError, StatusError

    try:
        return asked.server.ask(replace(page, max_new_tokens=MANY), more=more, text=text)
    except OverloadedError:
        raise
    except StatusError as refused:
        return refused.status
