"""``dsocr cost``: what pages cost by arithmetic, from their sizes alone; no model is run, and torch is not imported."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_dsocr.cli.arguments import PAGES, add, add_reading
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.cost import ITEM_BYTES
from pytest_dsocr.cost.model import activation_peaks, cache_bytes, parameters
from pytest_dsocr.cost.roofline import Device, device_called, priced
from pytest_dsocr.cost.workload import Workload, text_tokens
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.places import SYNTHETIC, architecture_of, folder_of, synthetic
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.foundation.errors import DsocrError, MachineError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.words import count, entry, si
from pytest_dsocr.pages.named import pages_in
from pytest_dsocr.pages.page_list import BadPage
from pytest_dsocr.report import costs

VENDORS = "full"
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")
ANY_SIZE = (1, 1)
DEVICE = "h200"
TOKENS = 1024


def add_run(command: ArgumentParser) -> None:
    """Add what is the command's alone."""
    command.add_argument("pages", type=Path, nargs="+", metavar="PAGE", help=PAGES)
    add(command, "--tokens", "how many tokens are written", TOKENS, type=int, metavar="TOKENS")
    add(command, "--device", "the device whose peaks are the roof, such as h200 or rtx-4090", DEVICE)
    checkpoint = "mini, a folder, synthetic:NAME or a hub name; its config alone is read (default: the vendor's sizes)"
    add(command, "--checkpoint", checkpoint)
    add(command, "--dtype", "float32, bfloat16 or float16", "bfloat16")
    add(command, "--attention", "eager, sdpa or flash_attention_2", "eager")
    command.add_argument("--layers", action="store_true", help="list each layer as well, of one page or in --json")
    add(command, "--json", "write all of it to this file", type=Path, metavar="FILE")
    add_reading(command)


@dataclass(frozen=True)
class Model:
    """What is known of a checkpoint without its weights."""

    name: str
    architecture: Architecture
    tokenizer: Tokenizer | None
    """Where it is at hand."""


def run(options: Namespace) -> Iterator[str]:
    """Calculate the pages that ``options`` name, and yield what to tell the user.

    Raises:
        DsocrError: on a bad option; on a page that cannot be opened, after all others are printed.
    """
    device, model = device_called(options.device), _model(options.checkpoint)
    works, bad = _works(options, _work(options, model))
    yield from (f"left out    {why}" for why in bad)
    if not works:
        raise MachineError("no page is left; name one that can be opened")
    pages = priced(model.architecture, [(path.name, work) for path, work in works])
    yield from entry("pages", costs.in_words(pages))
    yield from _how(model, max((work for _, work in works), key=lambda work: work.prompt_tokens), device)
    yield ""
    if len(pages) == 1:
        yield from costs.table(pages[0], device, layers=options.layers)
    else:
        yield from costs.grids(pages, device)
    if options.json:
        found = costs.to_json(pages, device, layers=options.layers)
        write_whole(options.json, (json.dumps(found, indent=1) + "\n").encode())
        yield f"written     {options.json}"
    if bad:
        raise MachineError(f"left out {count(len(bad), 'page')}, as is said above; mend what is wrong with them")


def _model(checkpoint: str | None) -> Model:
    if checkpoint is None:
        return Model("the vendor's sizes", SYNTHETIC[VENDORS], None)
    architecture = architecture_of(checkpoint)
    if synthetic(checkpoint):
        return Model(checkpoint, architecture, Tokenizer.byte_level(architecture.decoder.vocab_size))
    folder = folder_of(checkpoint)
    has_tokenizer = (folder / "tokenizer.json").is_file()
    return Model(checkpoint, architecture, Tokenizer.from_folder(folder) if has_tokenizer else None)


def _work(options: Namespace, model: Model) -> Workload:
    """Return the work that a page of any size is."""
    if options.tokens < 1:
        raise DsocrError(f"--tokens={options.tokens} leaves nothing to decode; give at least 1")
    for flag, values in (("dtype", tuple(ITEM_BYTES)), ("attention", ATTENTIONS)):
        if getattr(options, flag) not in values:
            raise DsocrError(f"--{flag}={getattr(options, flag)} is not known; give one of {', '.join(values)}")
    family = model.architecture.family
    prompt, preset = family.prompts.get(options.prompt, options.prompt), family.preset(options.preset)
    how = {"generated_tokens": options.tokens, "dtype": options.dtype, "attention": options.attention}
    if model.tokenizer is None:
        return Workload(ANY_SIZE, preset, text_tokens(prompt), **how)
    return Workload.of_prompt(ANY_SIZE, prompt, preset, model.tokenizer, **how)


def _works(options: Namespace, work: Workload) -> tuple[list[tuple[Path, Workload]], list[str]]:
    """Return each page with its work, and why others are left out."""
    good, bad = [], []
    for page in pages_in(options.pages):
        if isinstance(page, BadPage):
            bad.append(page.why)
            continue
        try:
            good.append((page, replace(work, page_px=load_image(page).size)))
        except DsocrError as error:
            bad.append(str(error))
    return good, bad


def _how(model: Model, work: Workload, device: Device) -> Iterator[str]:
    """Yield what is calculated, and with which peaks; ``work`` is the largest."""
    weights, size = sum(parameters(model.architecture).values()), ITEM_BYTES[work.dtype]
    cache, peaks = cache_bytes(model.architecture, work), activation_peaks(model.architecture, work)
    memory = f"{si(weights * size)}B of weights, at most {si(cache)}B of keys and values"
    activations = f"{si(max(peaks.values()))}B of activations; the device has {device.memory_gb:g} GB"
    how = "by its tokenizer" if model.tokenizer else "by its words, for no tokenizer is at hand"
    yield from entry("model", f"{model.name}: {si(weights)} parameters in {work.dtype}")
    yield from entry("memory", f"{memory} and {activations}")
    yield from entry("tokens", f"{work.text_tokens} of the prompt's text, {how}; {work.generated_tokens} are written")
    yield from entry("roof", f"{device.name}, {device.peak_text(work.dtype)}; from: {device.source}")
