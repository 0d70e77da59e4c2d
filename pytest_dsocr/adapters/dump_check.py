"""What the files of a dump are: whether names and shapes are those of the checkpoint, and which axes look exchanged.

Letters stand for what a page decides: P crops, S prompt tokens, N features, T tokens chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import permutations
from pathlib import Path

import torch

from pytest_dsocr.adapters.dump import LENGTHS, LOGITS, TOKENS, Dump
from pytest_dsocr.adapters.dump_files import READERS, TEXT
from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.families.family import FUSION, PREFILL, VIEWS
from pytest_dsocr.foundation.errors import DsocrError

Shape = tuple[int | str, ...]
FITS = "fits"
MOST_AXES = 5


def shapes(arch: Architecture, preset: Preset) -> dict[str, Shape]:
    """Return the shape of every file that a dump may have; the seams of views are computed without memory."""
    sides = {"crops": preset.image_size, "page": preset.view_size}
    found: dict[str, Shape] = {**dict.fromkeys(ROWS, (1, "S")), GRID: (1, 2)}
    found |= {PIXELS[0]: ("P", 3, sides["crops"], sides["crops"]), PIXELS[1]: (1, 3, sides["page"], sides["page"])}
    seams: dict[str, Shape] = {}
    with torch.device("meta"), torch.no_grad():
        pipeline = Pipeline(model_class(arch)(arch), Stages(torch.device("cpu"), "off"), autocast=False)
        for view in VIEWS[not preset.crop :]:
            for stage, tensor in pipeline.view(torch.empty(1, 3, sides[view], sides[view])).items():
                seams[f"{stage}.{view}"] = ("P" if view == "crops" else 1, *tensor.shape[1:])
    found |= {name: seams[name] for name in arch.family.vision_seams if name in seams}
    decoder = arch.decoder
    found |= {FUSION: ("N", decoder.hidden_size), PREFILL: (decoder.vocab_size,), LOGITS: ("T", decoder.vocab_size)}
    return {**found, TOKENS: ("T",), LENGTHS: ("T",)}


def check(folder: Path, arch: Architecture) -> Iterator[tuple[str, str, str]]:
    """Yield for each tensor of a case's folder its name, its dtype and shape, and what is to be said of it."""
    named = next((one for one in arch.family.presets.values() if f"-{one.name}-" in folder.name), None)
    if named is None:
        raise DsocrError(
            f"{folder.name} is no name of a case; call it PAGE-PRESET-PROMPT, such as page-gundam-markdown"
        )
    expected, letters = shapes(arch, named), dict[str, int]()
    for path in sorted(folder.iterdir()):
        if path.suffix not in READERS and path.name != TEXT:
            yield path.name, "", f"not read; the formats are {', '.join(READERS)}, and {TEXT}"
    tensors = Dump.read(folder).tensors
    for name in sorted(tensors, key=lambda one: [*expected, one].index(one)):
        found = tensors[name]
        what = f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"
        finding = _finding(name, tuple(found.shape), expected, letters)
        if name == LENGTHS and finding == FITS and "S" in letters:
            finding = _of_lengths(found.tolist(), letters["S"])
        yield name, what, finding


def _of_lengths(lengths: Sequence[int], prompt_tokens: int) -> str:
    wrong = next((k for k, length in enumerate(lengths) if length != prompt_tokens + k), None)
    return (
        FITS if wrong is None else f"{lengths[wrong]} positions at step {wrong}; expected {prompt_tokens} and {wrong}"
    )


def _finding(name: str, found: Sequence[int], expected: Mapping[str, Shape], letters: dict[str, int]) -> str:
    if (shape := expected.get(name)) is None:
        near = get_close_matches(name, expected, 1)
        return "no name that is read" + (f"; is it {near[0]}?" if near else "")
    if name == PIXELS[0] and _fits(found, expected[PIXELS[1]], {}):
        return f"{FITS} a page without crops"
    if _fits(found, shape, letters):
        return FITS
    wanted = f"expected [{', '.join(map(str, shape))}]" + "".join(
        f", {k} = {n}" for k, n in letters.items() if k in shape
    )
    if shape[0] == 1 and _fits((1, *found), shape, letters):
        return f"the first axis is missing; {wanted}"
    orders = permutations(range(len(found))) if len(found) <= MOST_AXES else ()
    for order in orders:
        if _fits([found[k] for k in order], shape, letters):
            return f"{_named(order)}; {wanted}"
    return wanted


def _named(order: Sequence[int]) -> str:
    last = len(order) - 1
    if [*order] == [*range(last - 1), last, last - 1]:
        return "transposed: the last two axes look exchanged"
    if [*order] == [0, last, *range(1, last)]:
        return "channels last: the last axis looks like the second"
    if [*order] == [*range(last, -1, -1)]:
        return "the axes stand in the opposite order"
    return f"the axes look exchanged: permute({', '.join(map(str, order))}) fits"


def _fits(found: Sequence[int], shape: Shape, letters: dict[str, int]) -> bool:
    """Return whether a shape is the expected one, and take its letters then."""
    if len(found) != len(shape):
        return False
    named = {one: size for one, size in zip(shape, found, strict=True) if isinstance(one, str)}
    is_right = all(
        size == (letters.get(one, size) if isinstance(one, str) else one)
        for one, size in zip(shape, found, strict=True)
    )
    if is_right:
        letters |= named
    return is_right
