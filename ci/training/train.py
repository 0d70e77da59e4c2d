"""Train the embedded checkpoint: ``python -m ci.training.train DIR``.

A run goes on where the last one in ``DIR`` ended, and stops after ``--minutes`` or after the last step. What it has
come to is written as a checkpoint by ``--export``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from ci.training.batch import Batch, on_device
from ci.training.feed import TrainingPages
from ci.training.progress import Curve
from ci.training.recipe import SCHEDULE, Schedule
from ci.training.telling import tell
from ci.training.trainer import Trainer, export
from pytest_dsocr.engine.checkpoint import device_named
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.process import progress_bar

LOG_EVERY = 25
SAVE_EVERY = 500


def train(
    folder: Path, *, minutes: float, workers: int, device: str = "cuda", schedule: Schedule = SCHEDULE
) -> Iterator[str]:
    """Go on with the training in ``folder``, or begin it there; yield what was reached and written as lines.

    Args:
        folder: where weights, optimiser, losses and the curve are kept.
        minutes: stop and save after so long.
        workers: processes that draw pages.
        device: torch's name of it.
        schedule: how many steps there are, and what changes over them.

    Raises:
        DsocrError: where there is no such device, or ``folder`` holds what is no training of this model.
    """
    deadline_s = time.monotonic() + 60 * minutes
    trainer = Trainer.open(folder, schedule, device_named(device))
    reached = _learn(trainer, folder, deadline_s, workers)
    trainer.save(folder)
    yield f"trained     step {trainer.step} of {schedule.steps}{reached}"
    yield f"written     {folder}"
    yield _drawn(Curve(folder))


def _learn(trainer: Trainer, folder: Path, deadline_s: float, workers: int) -> str:
    """Take steps until the deadline or the last one; give a line about the last."""
    steps, curve, reached = trainer.schedule.steps, Curve(folder), ""
    with progress_bar(total=steps, initial=trainer.step, unit="step", dynamic_ncols=True) as bar:
        for batch in batches(trainer.step, trainer.schedule, workers, trainer.device):
            found = trainer.learn(batch)
            bar.update()
            is_last = trainer.step == steps or time.monotonic() > deadline_s
            if is_last or trainer.step % LOG_EVERY == 0:
                reached = curve.add(trainer.step, *found)
                bar.set_postfix_str(reached)
            if is_last:
                break
            if trainer.step % SAVE_EVERY == 0:
                trainer.save(folder)
    return f": {reached}" if reached else ""


def _drawn(curve: Curve) -> str:
    """Draw the curve; where that fails, say why: a picture is no reason to lose a run."""
    try:
        return f"curve       {curve.draw()}"
    except DsocrError as error:
        return f"curve       not drawn: {error}"


def exported(folder: Path, checkpoint: Path) -> Iterator[str]:
    """Write the training in ``folder`` as a checkpoint, and yield a line about it."""
    export(folder, checkpoint)
    yield f"written     {checkpoint}"


def batches(step: int, schedule: Schedule, workers: int, device: torch.device) -> Iterator[Batch]:
    """Give the batch of every step that is left, drawn in processes of their own."""
    drawn = DataLoader(
        TrainingPages(schedule),
        batch_size=None,
        sampler=range(step, schedule.steps),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=2 if workers else None,
    )
    return (on_device(batch, device) for batch in drawn)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.training.train",
        description="Train the embedded checkpoint: from the beginning, or on from where the last run in DIR ended.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the training is kept between runs")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop and save after so long")
    parser.add_argument("--workers", type=int, default=15, help="processes that draw pages")
    parser.add_argument("--device", default="cuda", help="torch's name of it")
    parser.add_argument("--export", type=Path, metavar="CHECKPOINT", help="train nothing; write DIR as a checkpoint")
    options = parser.parse_args(arguments)
    if options.export:
        return tell(exported(options.folder, options.export))
    return tell(train(options.folder, minutes=options.minutes, workers=options.workers, device=options.device))


if __name__ == "__main__":
    raise SystemExit(main())
