"""``dsocr run``: read a page, or the pages of a PDF, with the engine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.files import seal, write_whole
from pytest_dsocr.base.progress import progress_bar
from pytest_dsocr.base.words import count
from pytest_dsocr.cli.arguments import add, add_model, add_reading, case_of, setup_of
from pytest_dsocr.contract.artifacts import OURS, Artifacts, boxes_in_pixels, split_pages, write_artifacts
from pytest_dsocr.contract.image import load_images, read_file
from pytest_dsocr.contract.markup import Span, parse, to_pixels
from pytest_dsocr.contract.prompt import CHECK_BOXES
from pytest_dsocr.cost.model import PageCost
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import MINI, MINI_IS_FOR, architecture_of
from pytest_dsocr.pages.named import is_pdf, together_in
from pytest_dsocr.pages.page_list import BadPage, page_named, shipped
from pytest_dsocr.pages.rendering import length_of_pdf, pages_of_pdf

if TYPE_CHECKING:
    from PIL import Image

    from pytest_dsocr.contract.inputs import Inputs
    from pytest_dsocr.engine.engine import Engine
    from pytest_dsocr.engine.result import PageResult
    from pytest_dsocr.layers.cache import KVCache

PAGE_HELP = "an image, a PDF or a shipped page's name; with the prompt `pages` a folder or a PDF is one case"


def add_run(command: ArgumentParser) -> None:
    """Add the page, the model, the prompt and the preset."""
    command.add_argument("page", nargs="?", type=Path, help=PAGE_HELP)
    command.add_argument("--page", type=int, metavar="NUMBER", dest="number", help="read only this page of the PDF")
    add_model(command)
    add_reading(command)
    add(command, "--max-new-tokens", "stop after this many tokens", 1024, type=int, metavar="TOKENS")
    what = "folder for the output files; each page of a PDF gets a folder in it"
    add(command, "--out", what, Path("dsocr-out"), type=Path)


def run(options: Namespace) -> Iterator[str]:
    """Read pages, write the output of each, and yield lines; pages that cannot be rendered are an error at the end."""
    path = page_named(options.page or shipped("dev-3")[0])
    numbers = _numbers(path, options.number)
    if options.checkpoint == MINI and read_file(path) not in map(Path.read_bytes, shipped("all")):
        yield f"noticed     {MINI}: {MINI_IS_FOR}"
    engine = _load(options)
    if options.number is None and options.prompt == engine.family.pages_prompt:
        [found] = together_in([path])
        if isinstance(found, BadPage):
            raise MachineError(found.why)
        path, numbers = found, ()
    if not numbers:
        yield from _read(engine, path, options, options.out)
        return
    left_out = 0
    for place, number in enumerate(numbers, 1):
        [page] = pages_of_pdf(path, [number])
        if isinstance(page, BadPage):
            yield f"left out    {page.why}"
            left_out += 1
        else:
            yield from _read(engine, page, options, options.out / page.stem, f"page {place} of {len(numbers)}")
            yield ""
    if left_out:
        raise MachineError(f"left out {count(left_out, 'page')} of {path}, as is said above")


def _numbers(path: Path, wanted: int | None) -> Sequence[int]:
    """Return the numbers of the PDF pages to read, or none for an image."""
    if not is_pdf(path):
        if wanted is not None:
            raise DsocrError(f"--page is for PDFs, and {path} is none; leave it out")
        return ()
    length = length_of_pdf(path)
    if wanted is not None and not 1 <= wanted <= length:
        raise DsocrError(f"{path} has {count(length, 'page')}, and no page {wanted}; give --page=1 to --page={length}")
    return range(1, length + 1) if wanted is None else (wanted,)


def _read(
    engine: Engine[KVCache], path: Path, options: Namespace, out: Path, bar_label: str = "decode"
) -> Iterator[str]:
    case = case_of(options, path)
    found = load_images(path)
    pages = found if isinstance(found, list) else [found]
    inputs = engine.prepare(found, prompt=options.prompt, preset=options.preset)
    yield f"page        {path.name}, {', '.join(f'{page.width} x {page.height}' for page in pages)} px"
    yield f"model       {', '.join(vars(setup_of(options)).values())}"
    yield f"inputs      {_inputs(inputs, options.preset)}"
    with progress_bar(unit="token", desc=bar_label, total=options.max_new_tokens) as bar:

        def on_token(_: int) -> None:
            bar.update()

        result = engine.run_prepared(inputs, max_new_tokens=options.max_new_tokens, on_token=on_token)
    artifacts = write_artifacts(result.text, found, out, engine.family.form)
    yield f"output      {result.counts.output_tokens} tokens, ended by {result.finish_reason}"
    if result.finish_reason == "length":
        yield "noticed     the output ended at its limit of tokens, and not at its end; raise --max-new-tokens"
    if not case.is_several:
        text_tokens = inputs.prompt_tokens - inputs.image_tokens
        how = (text_tokens, result.counts.output_tokens, options.dtype, options.attention)
        work = Workload(pages[0].size, case.preset, *how)
        yield f"cost        {PageCost.of(architecture_of(options.checkpoint), work)}"
    yield ""
    yield from _stages(result)
    yield ""
    said = split_pages(result.text) if case.is_several else [result.text]
    boxes: list[dict[str, Any]] = []
    for number, (page, text) in enumerate(zip(pages, said, strict=False)):
        if case.is_several:
            yield f"page {number + 1}"
        spans = parse(text, engine.family.form).spans
        boxes += boxes_in_pixels(spans, page.size, number if case.is_several else None)
        yield from _boxes(spans, page)
    if not boxes:
        yield f"noticed     no box was read: {CHECK_BOXES}"
    if options.checkpoint.startswith("synthetic:"):
        yield "  (synthetic weights are random: the text is noise; name a checkpoint to read with)"
    sizes = [{"width": page.width, "height": page.height} for page in pages]
    info = {"pages": sizes} if case.is_several else {"page": sizes[0]}
    kept = write_whole(out / OURS, seal({**info, "text": result.text, "boxes": boxes}), shared=True)
    yield from _files(replace(artifacts, paths=(*artifacts.paths, kept)), out)


def _load(options: Namespace) -> Engine[KVCache]:
    from pytest_dsocr.engine.engine import Engine  # brings torch

    with progress_bar(unit="B", unit_scale=True, desc="weights") as bar:

        def on_progress(done_bytes: int, total_bytes: int) -> None:
            bar.total = total_bytes
            bar.update(done_bytes - bar.n)

        return Engine.from_checkpoint(
            options.checkpoint,
            device=options.device,
            dtype=options.dtype,
            attention=options.attention,
            on_progress=on_progress,
            instrument="timed",
        )


def _inputs(inputs: Inputs, preset: str) -> str:
    columns, rows = inputs.images_spatial_crop[0].tolist()
    pages = len(inputs.images_ori)
    crops = f"{columns} x {rows} crops and the whole page" if columns * rows > 1 else count(pages, "whole page")
    return f"{preset}: {crops}, {inputs.prompt_tokens} prompt tokens, {inputs.image_tokens} of them image"


def _stages(result: PageResult) -> Iterator[str]:
    yield f"{'stage':<14}{'runs':>6}{'ms':>10}{'ms a run':>10}"
    for stage, times in result.stage_times.items():
        runs = len(times.runs_ms)
        yield f"{stage:<14}{runs:>6}{times.total_ms:>10.1f}{times.total_ms / runs:>10.2f}"


def _boxes(spans: Sequence[Span], page: Image.Image) -> Iterator[str]:
    yield f"{sum(len(span.boxes) for span in spans)} boxes in {len(spans)} spans"
    for span in spans:
        for box in span.boxes:
            x1, y1, x2, y2 = to_pixels(box, page.width, page.height)
            yield f"  {span.label:<16} {x1:>5} {y1:>5} {x2:>5} {y2:>5}  {span.text[:60]!r}"


def _files(artifacts: Artifacts, out: Path) -> Iterator[str]:
    names = ", ".join(path.relative_to(out).as_posix() for path in artifacts.paths)
    yield f"written     {out}: {names}"
    for problem in artifacts.problems[:5]:
        yield f"problem     {problem}"
