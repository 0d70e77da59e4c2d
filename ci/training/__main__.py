"""``python -m ci.training OUT``: train an embedded checkpoint, and write it.

A run goes on where the last one in OUT ended. The architecture and the tokenizer are those of a folder, whose weights
are not read; the pages come from a function in Python.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from ci.training.recipe import Recipe, Training, train
from ci.training.rows import PageMaker
from pytest_dsocr.engine.checkpoint import device_named
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.foundation.errors import DsocrError


def run(options: argparse.Namespace) -> Iterator[str]:
    """Train and export, as far as it was asked for; raise ``DsocrError`` on bad input."""
    make_page = _page_maker(options.pages)
    recipe = Recipe(options.like, make_page, steps=options.steps, batch_pages=options.batch, seed=options.seed)
    training = Training(recipe, device_named(options.device))
    training.resume(options.out)
    yield from train(training, options.out, minutes=options.minutes, workers=options.workers)
    if options.export:
        training.export(options.export)
        yield f"written {options.export}"


def _page_maker(name: str) -> PageMaker:
    module, _, function = name.partition(":")
    try:
        found: PageMaker = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise DsocrError(f"{name} makes no pages ({error}); give a function as module:function") from error
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.training", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder in which the training is kept between runs")
    parser.add_argument("--like", type=Path, default=MINI_FOLDER, help="folder with config.json and tokenizer.json")
    parser.add_argument("--pages", default="ci.training.typeset:typeset", help="what makes pages, as module:function")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="steps in all")
    parser.add_argument("--batch", type=int, default=Recipe.batch_pages, help="pages a step")
    parser.add_argument("--seed", type=int, default=Recipe.seed, help="seed of the weights to begin with")
    parser.add_argument("--minutes", type=float, default=600.0, help="save and end after so long")
    parser.add_argument("--workers", type=int, default=12, help="processes that make pages")
    parser.add_argument("--device", default="cuda", help="torch's name of it")
    parser.add_argument("--export", type=Path, metavar="CHECKPOINT", help="folder to write the checkpoint to")
    try:
        for line in run(parser.parse_args(arguments)):
            print(line, flush=True)
    except DsocrError as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
