"""``python -m ci.training OUT --config FILE``: train an embedded checkpoint, and write it.

With several GPUs: ``torchrun --nproc-per-node=2 -m ci.training ...``.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tokenizers
import torch
import torch.distributed as dist

from ci.training.recipe import Recipe, Training, train
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.checkpoint import device_named
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.weights import read_weights
from pytest_dsocr.models.architecture import Architecture


def run(given: argparse.Namespace) -> None:
    """Train, and write the weights in float32; or only write a checkpoint of such weights in bf16."""
    architecture = Architecture.from_config(json.loads(given.config.read_text(encoding="utf-8")), str(given.config))
    tokenizer = given.tokenizer / "tokenizer.json"
    if given.export:
        state = {name: tensor.to(torch.bfloat16) for name, tensor in read_weights(given.out).items()}
        write_checkpoint(given.export, architecture, state, tokenizers.Tokenizer.from_file(str(tokenizer)))
        return
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = device_named(f"cuda:{rank}" if given.device == "cuda" else given.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    numbers = {name: getattr(given, name) for name in NUMBERS if getattr(given, name) is not None}
    teacher = given.teacher if given.teacher and given.teacher.is_dir() else None
    recipe = Recipe(architecture, tokenizer, given.weights, teacher, **numbers)
    training = Training(recipe, device)
    if rank == 0:
        total = sum(one.numel() for one in training.model.parameters())
        print(
            f"{total} parameters, {2 * total / 1e6:.2f} MB in bf16; {len(training.new)} tensors begin anew", flush=True
        )
    for line in train(training, given.workers):
        if rank == 0:
            print(line, flush=True)
    if rank == 0:
        training.save(given.out)
        if device.type == "cuda":
            print(f"memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


NUMBERS: dict[str, type] = {
    "steps": int, "minutes": float, "batch_pages": int, "learning_rate": float, "last_rate": float,
    "level_share": float, "warmup_steps": int, "rehearsals": int, "taught": float, "seed": int, "first_step": int,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ci.training", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the trained weights in float32")
    parser.add_argument("--config", type=Path, required=True, help="config.json of the model to train")
    parser.add_argument("--weights", type=Path, default=MINI_FOLDER, help="folder of the weights to begin with")
    parser.add_argument("--teacher", type=Path, help="checkpoint whose vision tokens are imitated at first")
    parser.add_argument("--tokenizer", type=Path, default=MINI_FOLDER, help="folder of tokenizer.json")
    parser.add_argument("--export", type=Path, help="only write OUT as a checkpoint in bf16, to this folder")
    parser.add_argument("--workers", type=int, default=12, help="processes that draw pages, for each GPU")
    parser.add_argument("--device", default="cuda")
    for name, kind in NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"default {getattr(Recipe, name)}")
    try:
        run(parser.parse_args(arguments))
    except DsocrError as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
