"""``dsocr precision``: what weights in fewer bits cost on some pages, and the fewest that each stage can bear."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsocr.cli.arguments import PAGES, add, add_model, add_reading
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.foundation.errors import DsocrError, MachineError
from pytest_dsocr.foundation.process import progress_bar
from pytest_dsocr.foundation.words import count, entry
from pytest_dsocr.pages.named import pages_in
from pytest_dsocr.pages.page_list import BadPage
from pytest_dsocr.plugin.option_values import budget

if TYPE_CHECKING:
    from pytest_dsocr.explain.precision import Cost

MEASURED = ("kl", "tokens")
"""What of a budget is measured along the session's own tokens; boxes and text are not read anew for each precision."""


def add_run(command: ArgumentParser) -> None:
    """Add the pages, the model and the budget."""
    command.add_argument("pages", type=Path, nargs="+", metavar="PAGE", help=PAGES)
    add_model(command)
    add_reading(command)
    add(command, "--max-new-tokens", "along how many tokens of a page, at most", 256, type=int, metavar="TOKENS")
    what = f"what a stage may lose of {' and '.join(MEASURED)}, as --dsocr-budget has it"
    add(command, "--budget", what, "int8", metavar="BUDGET")


def run(options: Namespace) -> Iterator[str]:
    """Measure the pages that ``options`` name, and yield what to tell the user.

    Raises:
        DsocrError: on a bad option, or a page that cannot be opened.
    """
    allowed = {name: value for name, value in budget(options.budget).items() if name in MEASURED}
    if not allowed:
        raise DsocrError(
            f"--budget={options.budget} limits nothing that is measured here; give kl=0.02, or tokens=0.01"
        )
    pages = [*pages_in(options.pages)]
    if bad := [page.why for page in pages if isinstance(page, BadPage)]:
        raise MachineError("; ".join(bad))
    from pytest_dsocr.engine.engine import Engine  # brings torch
    from pytest_dsocr.explain.precision import PRECISIONS, STAGES, Costs, fewest_bits

    how = {name: getattr(options, name) for name in ("device", "dtype", "attention")}
    engine = Engine.from_checkpoint(options.checkpoint, instrument="off", **how)
    reading = {"prompt": options.prompt, "preset": options.preset}
    inputs = [engine.prepare(load_image(page), **reading) for page in pages if isinstance(page, Path)]
    with progress_bar(unit="pass", total=len(inputs) * (1 + len(STAGES) * len(PRECISIONS))) as bar:
        costs = Costs(engine, inputs, options.max_new_tokens, bar.update)
        found = [*costs]
    yield from entry(
        "pages", f"{count(len(inputs), 'page')}, {count(costs.tokens, 'token')} of the session's own reading"
    )
    yield from entry("model", f"{options.checkpoint}, {', '.join(how.values())}")
    yield ""
    yield from _table(found)
    yield ""
    least = ", ".join(f"{stage} {name or 'none of these'}" for stage, name in fewest_bits(found, allowed).items())
    limits = " and ".join(f"{name} up to {value:g}" for name, value in allowed.items())
    yield from entry("fewest bits", f"{least}: with {limits}, each stage alone")


def _table(costs: Sequence[Cost]) -> Iterator[str]:
    """Yield a row for each stage: in each precision its divergence in nats, and the share of tokens that change."""
    names = dict.fromkeys(cost.precision for cost in costs)
    yield f"{'weights of':<12}" + "".join(f"{name:>18}" for name in names)
    for stage, row in groupby(costs, key=lambda cost: cost.stage):
        yield f"{stage:<12}" + "".join(f"{cost.kl:>10.2g}{cost.tokens:>8.1%}" for cost in row)
