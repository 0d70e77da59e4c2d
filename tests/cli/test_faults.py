"""``dsocr faults``: the list, and one mistake on a page of one's own."""

from __future__ import annotations

import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from pytest_dsocr.cli import faults
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import shipped


def asked(name: str | None, **options: object) -> Namespace:
    return Namespace(**{"id": name, "page": None, "out": Path("out"), "table": None, **options})


def test_the_list_has_a_line_for_each_with_its_numbers() -> None:
    lines = [*faults.run(asked(None))]
    assert len(lines) == len(mistakes())
    [line] = [line for line in lines if line.startswith("clip.activation-erf ")]
    assert line.endswith("(CLP-01)")


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(DsocrError, match="dsocr faults lists them"):
        [*faults.run(asked("CLP-99"))]


def test_a_page_of_ones_own_is_shown_against_the_session_without_the_mistake(tmp_path: Path) -> None:
    page = next(one for one in shipped("dev-3") if one.stem == "figures_201")
    assert any("shows at" in line for line in faults.described("PRJ-W1"))
    ran = subprocess.run(
        [*faults.command("PRJ-W1", page, tmp_path), "--dsocr-max-new-tokens=4"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "SAM's features in front of CLIP's in front of the projector" in ran.stdout
    assert list((tmp_path / "pages").glob("*.jpg"))
