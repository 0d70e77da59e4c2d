"""The bar of a command is for who watches a terminal."""

from __future__ import annotations

import os
import sys
import termios
from typing import Any

import pytest

from pytest_dsocr.foundation.process import progress_bar

SHOWN: dict[str, Any] = {"total": 2, "desc": "pages", "mininterval": 0}


def test_a_terminal_shows_the_bar_and_it_goes_when_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    with os.fdopen(follower, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar(**SHOWN) as bar:
            bar.update()
            bar.update()
        terminal.write("end\n")
        terminal.flush()
        with os.fdopen(leader, encoding="utf-8", newline="\n") as screen:
            *redrawn, last = screen.readline().split("\r")[:-1]
    assert any("pages: 100%" in line for line in redrawn)
    assert last == "end"


def test_elsewhere_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(**SHOWN) as bar:
        bar.update()
    assert capsys.readouterr().err == ""
