"""``processor:package.module:Class``: a server's processor, with the engine's model after it; no GPU, no server.

The class is constructed from a tokenizer of transformers and the contents of ``processor_config.json``. It receives a
page and a prompt, and returns the inputs by the vendor's names, as those of vLLM and SGLang do. Level 1: the inputs are
compared, and the text that the engine reads from them.
"""

import importlib
import inspect
import warnings
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract import GRID, PIXELS
from pytest_dsocr.contract.image import load_images
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE, render
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.engine.portable import write_portable
from pytest_dsocr.records.config import Level
from pytest_dsocr.subjects.calls import guarded, refusal
from pytest_dsocr.subjects.loading import PROCESSOR as WORD
from pytest_dsocr.subjects.loading import named_factory
from pytest_dsocr.subjects.parts import Completed, completed
from pytest_dsocr.subjects.protocol import Offers, Setup

LEVEL = Level.INPUTS
OWN_PROCESS = False
OTHER_NAMES = {PIXELS[1]: ("pixel_values",), "images_seq_mask": ("image_seq_mask",)}
"""Other names of tensors that lack the vendor's name."""
TEXTS, SWITCHES = ("prompt", "text"), ("crop_mode", "cropping")
"""Parameter names under which a processor takes the prompt, and the choice to cut pages into crops."""


def offers(spec: str) -> Offers:
    """Return that all is offered, as a processor names no limits; raise ``DsocrError`` if there is no such class."""
    named_factory(spec.removeprefix(WORD))
    return Offers()


def subject(spec: str, setup: Setup) -> Completed:
    """Return the subject that ``spec`` names; raise ``DsocrError`` if it is not available."""
    raised = refusal(f"{spec} cannot be had", "run pytest where its package is installed")
    with guarded("load", "processor", raised):
        return completed(ProcessorInputs(named_factory(spec.removeprefix(WORD)), setup), setup)


class ProcessorInputs:
    """A processor's inputs, a part of an implementation; ``kind`` is the processor's class."""

    def __init__(self, kind: Any, setup: Setup) -> None:
        self._kind, self._setup = kind, setup
        self._of = cache(self._made)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return the processor's inputs for a page, which it receives upright and in RGB.

        For a folder it receives each page, and an ``<image>`` for each if the prompt has one, as clients send them.
        """
        found, text = load_images(page), render(prompt)
        pages = found if isinstance(found, list) else [found]
        call = self._of(preset).__call__
        if not set(SWITCHES).intersection(inspect.signature(call).parameters):
            call = getattr(self._of(preset), "process_one", call)
        offered = inspect.signature(call).parameters
        name_of_text = next((name for name in TEXTS if name in offered), None)
        if name_of_text is None:
            raise DsocrError(f"the processor takes {', '.join(offered)}, and no {' or '.join(TEXTS)}; name another")
        given = {name: preset.crop for name in SWITCHES if name in offered}
        with redirect_stdout(StringIO()):
            made = call(**{name_of_text: text.replace(IMAGE, IMAGE * len(pages))}, images=pages, **given)
        named = {name: _found(made, (name, *OTHER_NAMES.get(name, ()))) for name in Inputs.__annotations__}
        return _in_shape(named, preset)

    def _made(self, preset: Preset) -> Any:
        """Make the processor for a preset."""
        sizes = {"image_size": preset.image_size, "base_size": preset.base_size if preset.crop else preset.image_size}
        published = family_named(self._setup.checkpoint).vendor.published["processor"]
        taken = inspect.signature(self._kind.__init__).parameters
        values = {"tokenizer": self._tokenizer, **published, **sizes}
        with redirect_stdout(StringIO()):
            made = self._kind(**{name: value for name, value in values.items() if name in taken})
        for name, size in sizes.items():
            if hasattr(made, name):
                setattr(made, name, size)
        return made

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizers = importlib.import_module("transformers").AutoTokenizer
        with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):  # about its config, not ours
            write_portable(self._setup.checkpoint, Path(folder))
            return tokenizers.from_pretrained(folder)


def _in_shape(made: Mapping[str, Any], preset: Preset) -> dict[str, Tensor]:
    """Return the tensors in the vendor's shapes and dtypes: a batch's row, bf16, zeros if there are no crops."""
    given = {name: torch.as_tensor(value) for name, value in made.items()}
    rows = {name: given[name].reshape(1, -1) for name in ("input_ids", "images_seq_mask")}
    grid = given[GRID].reshape(-1, 2).long()
    crops, pages = (given[name].flatten(0, -4).bfloat16() for name in PIXELS)
    if int(grid.prod()) == 1:
        crops = torch.zeros(1, 3, preset.base_size, preset.base_size)
    return {
        "input_ids": rows["input_ids"].long(),
        "images_seq_mask": rows["images_seq_mask"].bool(),
        GRID: grid,
        PIXELS[0]: crops,
        PIXELS[1]: pages,
    }


def _found(made: Any, names: Iterable[str]) -> Any:
    for name in names:
        if name in made.keys():  # noqa: SIM118 - some are no mappings
            return made[name]
    wanted, *_ = names
    raise DsocrError(f"the processor gave {', '.join(made.keys())}, and no {wanted}; it is none of DeepSeek-OCR")
