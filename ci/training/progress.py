"""How the losses go: a line on the terminal, a file of numbers, and a picture of the curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import torch

from ci.training.losses import AnswerLosses, VisionLosses
from pytest_dsocr.foundation.errors import DsocrError

NUMBERS = "curve.jsonl"
PICTURE = "curve.png"
LOSSES = ("text", "coordinates", "words", "layout")
SHARES = ("text_right", "words_right")
SMOOTHING = 0.9
"""How much of the curve's last point is in the next one."""

Row = Mapping[str, float]
"""A step, and its losses by name."""


class Curve:
    """The losses of some steps, appended to ``folder/curve.jsonl`` as they come."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def add(self, step: int, of_answer: AnswerLosses, of_vision: VisionLosses) -> str:
        """Write down the losses of ``step``; give a line about them. Waits for the device."""
        found = {f.name: getattr(losses, f.name) for losses in (of_answer, of_vision) for f in fields(losses)}
        values = torch.stack([value.detach().float() for value in found.values()]).tolist()
        row = {"step": step, **{name: round(value, 4) for name, value in zip(found, values, strict=True)}}
        with (self.folder / NUMBERS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return (
            f"text {row['text']:.2f} ({row['text_right']:.0%} right), words {row['words']:.2f} "
            f"({row['words_right']:.0%} right), boxes +-{row['coordinate_error']:.0f}/999"
        )

    def rows(self) -> list[Row]:
        """Read what was written, by this run and those before it; raise ``DsocrError`` where there is nothing."""
        path = self.folder / NUMBERS
        try:
            rows: list[Row] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise DsocrError(f"{path} cannot be read ({error}); delete it, and train on") from error
        return rows

    def draw(self) -> Path:
        """Draw ``folder/curve.png``.

        Raises:
            DsocrError: where matplotlib is not installed, or there are no losses to draw.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise DsocrError("the curve needs matplotlib; run: pip install 'pytest-dsocr[train]'") from error
        rows = self.rows()
        figure = Figure(figsize=(9, 5), layout="constrained")
        losses, shares = figure.subplots(1, 2)
        for axes, names in ((losses, LOSSES), (shares, SHARES)):
            for name in names:
                axes.plot([row["step"] for row in rows], smooth([row[name] for row in rows]), label=name)
            axes.legend()
        losses.set(xlabel="step", ylabel="loss", yscale="log")
        shares.set(xlabel="step", ylabel="share right", ylim=(0, 1))
        figure.savefig(self.folder / PICTURE, dpi=100)
        return self.folder / PICTURE


def smooth(values: Sequence[float]) -> list[float]:
    """Give a running mean of ``values`` that begins with the first of them."""
    smoothed: list[float] = []
    for value in values:
        smoothed.append(SMOOTHING * smoothed[-1] + (1 - SMOOTHING) * value if smoothed else value)
    return smoothed
