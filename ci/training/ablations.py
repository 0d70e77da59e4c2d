"""What a checkpoint makes use of: ``python -m ci.training.ablations``.

The same pages are read by the intact session and with one thing after the other broken; a table, and
``ablations.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ci.training.broken import ABLATIONS, INTACT, broken
from ci.training.evaluate import add_pages, provenance, sources, timed_session
from ci.training.figures import Figure, figures
from ci.training.reading import CEILING, Reading, Source, each, judge, open_page, truth_of
from ci.training.sequences import common_prefix
from ci.training.telling import tell, write_json
from pytest_dsocr.engine.checkpoint import resolve

COLUMNS = {
    "exact_boxes": "exact boxes",
    "iou": "IoU",
    "found": "found",
    "labels": "labels",
    "title_errors": "titles wrong",
    "text_errors": "text wrong",
    "ended": "EOS",
}
"""Measures that the table shows, and how they are called there."""
ALIKE = "alike"


def ablations(options: argparse.Namespace) -> Iterator[str]:
    """Read the pages that ``options`` name, intact and broken, yield a table, and write it to ``options.out``.

    Raises:
        DsocrError: where there is no such checkpoint or subset, or no pages.
    """
    checkpoint, pages = resolve(options.checkpoint), sources(options)
    task = partial(read_broken, options.checkpoint, prompt=options.prompt, preset=options.preset)
    read = list(each(task, pages, options.jobs))
    by_name = {ablation.name: [of_page[ablation.name] for of_page in read] for ablation in (INTACT, *ABLATIONS)}
    yield f"{checkpoint.label}, {len(pages)} pages {options.subset or 'held out'}, {options.preset}"
    yield ""
    yield from table(by_name)
    path = options.out / "ablations.json"
    write_json(path, {**provenance(checkpoint, options), "pages": len(pages), "ablations": to_json(by_name)})
    yield ""
    yield f"written     {path}"


def read_broken(checkpoint: str, source: Source, *, prompt: str, preset: str) -> dict[str, Reading]:
    """Read one page intact and with each ablation; gives the readings by the ablations' names."""
    session = timed_session(checkpoint)
    name, page = open_page(source)
    truth, inputs = truth_of(page, prompt), session.prepare(page.image, prompt=prompt, preset=preset)
    readings = {}
    for ablation in (INTACT, *ABLATIONS):
        with broken(session, ablation):
            readings[ablation.name] = judge(name, session.run_prepared(inputs, max_new_tokens=CEILING), truth)
    return readings


def alike(readings: Sequence[Reading], intact: Sequence[Reading]) -> float:
    """Give the share of the intact answers' tokens that come before the first that differs."""
    shared = sum(common_prefix(a.token_ids, b.token_ids) for a, b in zip(readings, intact, strict=True))
    return shared / sum(len(reading.token_ids) for reading in intact)


def table(by_name: Mapping[str, Sequence[Reading]]) -> Iterator[str]:
    """Yield a line for each ablation; ``alike`` is the share of tokens before the first that the break changed."""
    yield "".join([f"{'':<32}", *(f"{head:>14}" for head in (*COLUMNS.values(), ALIKE))])
    for name, readings in by_name.items():
        found = _by_key(readings)
        cells = [found[key].shown(found[key].value) for key in COLUMNS]
        cells.append(f"{100 * alike(readings, by_name[INTACT.name]):.1f} %")
        yield "".join([f"{name:<32}", *(f"{cell:>14}" for cell in cells)])


def to_json(by_name: Mapping[str, Sequence[Reading]]) -> dict[str, Any]:
    """Give the figures of each ablation."""
    return {
        name: {
            ALIKE: alike(readings, by_name[INTACT.name]),
            **{key: figure.to_json() for key, figure in _by_key(readings).items()},
        }
        for name, readings in by_name.items()
    }


def _by_key(readings: Sequence[Reading]) -> dict[str, Figure]:
    return {figure.measure.key: figure for figure in figures([reading.quality for reading in readings])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.training.ablations",
        description="What a checkpoint makes use of: the same pages with one thing after the other broken.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_pages(parser, 40)
    return tell(ablations(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
