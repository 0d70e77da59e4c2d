"""Checks of a dump's files: their names and shapes against the checkpoint's, and axes that look exchanged.

Letters are sizes that a page determines: P crops, S prompt tokens, N features, T tokens chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import permutations
from pathlib import Path

import torch

from pytest_dsocr.adapters.dump_files import LENGTHS, LOGITS, READERS, TEXT, TOKENS, Dump, block_name
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import FUSION, PREFILL, VIEWS

Shape = tuple[int | str, ...]
FITS = "fits"


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
    """Yield for each file of a case's folder its name, its dtype and shape, and a remark."""
    preset = next((one for one in arch.family.presets.values() if f"-{one.name}-" in folder.name), None)
    if preset is None:
        raise DsocrError(f"{folder} is not called as a case; call it PAGE-PRESET-PROMPT, such as page-tiny-markdown")
    expected, letters, tensors = shapes(arch, preset), dict[str, int](), Dump.read(folder).tensors
    for path in sorted(folder.iterdir()):
        if path.suffix not in READERS and path.name != TEXT:
            yield path.name, "", f"not read; the formats are {', '.join(READERS)}, and {TEXT}"
    for name in sorted(tensors, key=[*expected, *tensors].index):
        found = tensors[name]
        taken = found[..., : arch.decoder.vocab_size] if name in (LOGITS, PREFILL) and found.ndim else found
        finding = _finding(name, tuple(taken.shape), expected, letters)
        if (
            name == LENGTHS
            and finding == FITS
            and (first := letters.get("S"))
            and found.tolist() != [*range(first, first + len(found))]
        ):
            finding = f"they do not grow by one from the prompt's {first} on"
        yield name, f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}", finding


def _finding(name: str, found: tuple[int, ...], expected: Mapping[str, Shape], letters: dict[str, int]) -> str:
    if block_name(name).rpartition("/")[0] in expected:
        return f"{FITS} a block's output, of any shape"
    if (shape := expected.get(name)) is None:
        near = get_close_matches(name, expected, 1)
        return f"no name that is read{f'; is it {near[0]}?' if near else ''}"
    if name == PIXELS[0] and _fits(found, expected[PIXELS[1]], {}):
        return f"{FITS} a page without crops"
    if _fits(found, shape, letters):
        return FITS
    wanted, last = f"expected {[letters.get(str(one), one) for one in shape]}".replace("'", ""), len(found) - 1
    if _fits((1, *found), shape, letters):
        return f"{wanted}: the first axis is missing"
    looks = {
        (*range(last, -1, -1),): "axes in the opposite order",
        (0, last, *range(1, last)): "channels last",
        (*range(last - 1), last, last - 1): "transposed",
    }
    for order in permutations(range(len(shape))) if len(found) == len(shape) else ():
        if _fits([found[k] for k in order], shape, letters):
            return f"{wanted}: {looks.get(order, f'axes exchanged, permute{order} fits')}"
    return wanted


def _fits(found: Sequence[int], shape: Shape, letters: dict[str, int]) -> bool:
    """Return whether a shape is the expected one; its letters are known then."""
    known = dict(letters)
    sizes = [known.setdefault(one, n) if isinstance(one, str) else one for one, n in zip(shape, found, strict=False)]
    is_right = len(found) == len(shape) and sizes == [*found]
    letters.update(known if is_right else {})
    return is_right
