"""``python -m ci.training OUT --config FILE``: train an embedded checkpoint, and write it.

With several GPUs: ``torchrun --nproc-per-node=2 -m ci.training ...``.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from ci.training.recipe import Recipe, Training, train
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.checkpoint import device_named
from pytest_dsocr.models.architecture import Architecture


def run(given: argparse.Namespace) -> None:
    """Train, and write the checkpoint."""
    architecture = Architecture.from_config(json.loads(given.config.read_text(encoding="utf-8")), str(given.config))
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = device_named(f"cuda:{rank}" if given.device == "cuda" else given.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    training = Training(
        Recipe(architecture, given.teacher, minutes=given.minutes, batch_pages=given.batch_pages), device
    )
    for line in train(training, given.workers):
        if rank == 0:
            print(line, flush=True)
    if rank == 0:
        training.save(given.out)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ci.training", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the checkpoint, in bf16")
    parser.add_argument("--config", type=Path, required=True, help="config.json of the model to train")
    parser.add_argument("--teacher", type=Path, help="checkpoint that has vision tokens to imitate at first")
    parser.add_argument("--minutes", type=float, default=Recipe.minutes)
    parser.add_argument("--batch-pages", type=int, default=Recipe.batch_pages, help="pages of a step, for each GPU")
    parser.add_argument("--workers", type=int, default=10, help="processes that draw pages, for each GPU")
    parser.add_argument("--device", default="cuda")
    try:
        run(parser.parse_args(arguments))
    except DsocrError as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
