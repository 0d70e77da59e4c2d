"""Which presets and prompts a subject offers: how it says so, and what becomes of a case that is not of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.loading import load_subject, offers_before_loading
from pytest_dsocr.subjects.protocol import NotOfferedError, Offers, Setup

HERE = "tests.subjects.test_offers"
GUNDAM = Case(Path("page.png"), PROMPTS["markdown"], PRESETS["gundam"], 4)
TINY = Case(Path("page.png"), PROMPTS["markdown"], PRESETS["tiny"], 4)
FREE = Case(Path("page.png"), PROMPTS["free"], PRESETS["gundam"], 4)


class GundamOnly:
    """Offers one of each."""

    presets: tuple[str, ...] = ("gundam",)
    prompts = ("markdown",)

    def read(self, page: Path, **asked: Any) -> str:
        return "text"

    def inputs(self, page: Path, **asked: Any) -> Any:
        raise AssertionError("it is not asked for what it does not offer")


class Misnamed(GundamOnly):
    """Names a preset that there is not."""

    presets = ("gundam", "huge")


def test_what_is_offered_is_asked() -> None:
    assert CheckedSubject(GundamOnly()).read(GUNDAM) == "text"


@pytest.mark.parametrize(("case", "what"), [(TINY, "preset tiny"), (FREE, "prompt free")])
@pytest.mark.parametrize("method", ["read", "inputs"])
def test_what_is_not_offered_is_not_asked(case: Case, what: str, method: str) -> None:
    with pytest.raises(NotOfferedError, match=f"^not offered: the {what}; the subject offers (gundam|markdown)$"):
        getattr(CheckedSubject(GundamOnly()), method)(case)


def test_it_is_known_before_it_is_loaded() -> None:
    assert offers_before_loading(f"{HERE}:GundamOnly").told == "; presets: gundam; prompts: markdown"
    assert offers_before_loading("cli:--presets=tiny,base cat {page}") == Offers(("tiny", "base"))
    for included in ("session", "session:fast", "vendor:absent"):
        assert offers_before_loading(included).told == ""


def test_a_command_carries_it() -> None:
    subject: Any = load_subject("cli:--prompts=ocr cat {page}", Setup())
    assert Offers.of(subject) == Offers(prompts=("ocr",))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (f"{HERE}:Misnamed", "the subject's presets name 'huge'; give names of tiny, small, base, large, gundam"),
        ("cli:--prompts=none cat {page}", "the subject's prompts name 'none'; give names of markdown, ocr, free, "),
    ],
)
def test_a_name_that_there_is_not_is_refused(spec: str, told: str) -> None:
    with pytest.raises(DsocrError, match=told):
        offers_before_loading(spec)
