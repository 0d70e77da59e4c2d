"""``dsocr cost``: what pages cost by arithmetic, from their sizes alone; no model is run, and torch is not imported."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_dsocr.contract.image import image_size
from pytest_dsocr.contract.presets import get_preset
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.places import architecture_of, folder_of
from pytest_dsocr.engine.sizes import SYNTHETIC, synthetic
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.foundation.words import count, near, si, told
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.named import pages_in
from pytest_dsocr.pages.page_list import BadPage
from pytest_dsocr.perf import baseline
from pytest_dsocr.perf.baseline import Baseline
from pytest_dsocr.perf.nearness import nearness, roof_over
from pytest_dsocr.reference.goldens import BASELINES, OWN, baseline_places, golden_folder
from pytest_dsocr.report import cost_charts, costs
from pytest_dsocr.workload.model import cache_bytes, decode_step, parameters, stages_of
from pytest_dsocr.workload.operations import ITEM_BYTES
from pytest_dsocr.workload.prompt import text_tokens
from pytest_dsocr.workload.roof import Roof
from pytest_dsocr.workload.roofline import Device, device_called
from pytest_dsocr.workload.spread import Priced, priced
from pytest_dsocr.workload.workload import Workload

VENDORS = "full"
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")


def run(options: Namespace) -> Iterator[str]:
    """Calculate the pages that ``options`` name, and yield what to tell the user.

    Raises:
        DsocrError: on a bad option; on a page that cannot be opened, after all others are told.
    """
    device, arch = device_called(options.device), _architecture(options.checkpoint)
    works, bad = _works(options)
    yield from (f"left out    {why}" for why in bad)
    if not works:
        raise DsocrError("no page is left; name one that can be opened")
    pages = priced(arch, [(path.name, work) for path, work in works])
    if len(works) == 1:
        yield from _page(options, arch, *works[0], device)
    else:
        yield from _pages(options, arch, pages, device)
    for path, content in _drawn(options, pages, device):
        write_whole(path, content.encode("utf-8", "replace"))
        yield f"written     {path}"
    if bad:
        raise DsocrError(f"left out {count(len(bad), 'page')}, as is said above; mend what is wrong with them")


def _works(options: Namespace) -> tuple[list[tuple[Path, Workload]], list[str]]:
    """Give each page with its work, and why others are left out."""
    if options.tokens < 1:
        raise DsocrError(f"--tokens={options.tokens} leaves nothing to decode; give at least 1")
    for flag, values in (("dtype", tuple(ITEM_BYTES)), ("attention", ATTENTIONS)):
        if getattr(options, flag) not in values:
            raise DsocrError(f"--{flag}={getattr(options, flag)} is not known; give one of {', '.join(values)}")
    preset, text = get_preset(options.preset), text_tokens(options.prompt, _tokenizer(options.checkpoint))
    how = {"dtype": options.dtype, "attention": options.attention}
    good, bad = [], []
    for page in pages_in(options.pages):
        if isinstance(page, BadPage):
            bad.append(page.why)
            continue
        try:
            good.append((page, Workload(image_size(page), preset, text, options.tokens, **how)))
        except DsocrError as error:
            bad.append(str(error))
    return good, bad


def _page(options: Namespace, arch: Architecture, path: Path, work: Workload, device: Device) -> Iterator[str]:
    yield from told("page", f"{path.name}, {costs.work_in_words(work)}")
    yield from _how(options, arch, work, device)
    yield ""
    roof = Roof.of(arch, work, device)
    step = decode_step(arch, work, work.prompt_tokens + work.decode_steps) if work.decode_steps else None
    yield from costs.table(stages_of(arch, work), step, roof, layers=options.layers)
    for place, found in _measured(options, path, device):
        measured = found.measured
        if over := roof_over(measured, arch, work.page_px, device):
            yield ""
            tokens, rounds = count(measured.exact["tokens.output"], "token"), count(len(measured.good), "round")
            subject = f"{measured.identity['subject']}, {measured.identity['setup']['attention']}"
            yield from told("measured", f"{subject}, {tokens}, {rounds} of {found.made}: {near(str(place))}")
            yield from costs.near_table(list(nearness(measured, over)))


def _pages(options: Namespace, arch: Architecture, pages: Sequence[Priced], device: Device) -> Iterator[str]:
    yield from told("pages", f"{count(len(pages), 'page')}, {options.preset}")
    yield from _how(options, arch, pages[0].work, device)
    yield ""
    yield from costs.spread(pages, device)


def _how(options: Namespace, arch: Architecture, work: Workload, device: Device) -> Iterator[str]:
    """Yield what is calculated, and with which peaks."""
    size = ITEM_BYTES[work.dtype]
    weights, cache = sum(parameters(arch).values()), cache_bytes(arch, work)
    name = options.checkpoint or "the vendor's sizes"
    yield from told(
        "model", f"{name}: {si(weights)}parameters, {si(weights * size)}B in {work.dtype}, {work.attention}"
    )
    how = "by its tokenizer" if _tokenizer(options.checkpoint) else "by its words, for no tokenizer is at hand"
    yield from told("tokens", f"{work.text_tokens} of the prompt's text, {how}; {work.generated_tokens} are written")
    yield from told("cache", f"{si(cache)}B of keys and values at the end")
    yield from told("roof", f"{device.name}, {device.peak_in_words(work.dtype)}; from: {device.source}")


def _architecture(checkpoint: str | None) -> Architecture:
    return SYNTHETIC[VENDORS] if checkpoint is None else architecture_of(checkpoint)


def _tokenizer(checkpoint: str | None) -> Tokenizer | None:
    """Give the checkpoint's tokenizer, where it is at hand."""
    if checkpoint is None:
        return None
    if known := synthetic(checkpoint):
        return Tokenizer.byte_level(known[0].decoder.vocab_size)
    folder = folder_of(checkpoint)
    return Tokenizer.from_folder(folder) if (folder / "tokenizer.json").is_file() else None


def _measured(options: Namespace, path: Path, device: Device) -> Iterator[tuple[Path, Baseline]]:
    """Yield the baselines of this page, checkpoint and device; the page is loaded only where one may be its own."""
    places = list(dict.fromkeys((OWN.absolute() / BASELINES, *baseline_places(golden_folder()))))
    case = make_case(path, options.prompt, options.preset)
    wanted = {
        "setup.checkpoint": str(options.checkpoint),
        "setup.dtype": options.dtype,
        "setup.attention": options.attention,
        "page.prompt": case.prompt,
        "page.preset": case.preset.name,
    }
    for place, found in baseline.having(places, wanted):
        of_device = found.measured.identity["machine"].get("gpu") in device.gpus
        if of_device and found.measured.identity["page"]["sha256"] == case.page_sha256:
            yield place, found


def _drawn(options: Namespace, pages: Sequence[Priced], device: Device) -> Iterator[tuple[Path, str]]:
    if options.json:
        yield options.json, json.dumps(costs.to_json(pages, device), indent=1) + "\n"
    if options.html:
        yield options.html, cost_charts.html(pages, device)
