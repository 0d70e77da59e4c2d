"""openvino_notebooks' DeepSeek-OCR: the vendor's model, converted to OpenVINO by its helper, and read by its ``infer``.

The helper's notebook puts the vendor's files into a package ``DeepSeek_OCR``, with an encoder of its own among them.
"""

import importlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from pytest_dsocr.adapters.wrapped import Wrapped
from pytest_dsocr.contract import GRID, PIXELS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.families.family import VIEWS
from pytest_dsocr.reference.vendor_code.code import stand_in_for_torchvision
from pytest_dsocr.reference.vendor_code.observe import VENDOR_IMAGE_ID, inputs_of
from pytest_dsocr.subjects.protocol import Setup

NOT_EMPTY = ((),)
"""What its ``forward`` takes for a cache that is not empty: the cache is a state of the model."""


@dataclass
class OpenVinoState:
    """Where decoding stands; the cache is the request's."""

    request: Any
    logits: Tensor

    @property
    def cache(self) -> "OpenVinoState":
        """A view of the states, named as the tensors that they were."""
        return self

    @property
    def length(self) -> int:
        """Positions held."""
        return self.keys(0).shape[2]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.request.query_state()) // 2

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[1, G, S, D]``."""
        return self._held(f"past_key_values.{layer}.key")

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[1, G, S, D]``."""
        return self._held(f"past_key_values.{layer}.value")

    def _held(self, name: str) -> Tensor:
        [state] = [one for one in self.request.query_state() if one.name.startswith(name)]
        return torch.from_numpy(state.state.data.copy()).float()


class OpenVino:
    """L2: the helper's model, converted anew for each run; the stages of its vision are one graph."""

    seams = ("projector.page", "projector.crops", "vision_fusion")

    def __init__(self, setup: Setup) -> None:
        stand_in_for_torchvision()
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), _ignored():
            helper: Any = importlib.import_module("ov_deepseek_ocr_helper")
            vendor = Wrapped(Path(helper.__file__).parent / "DeepSeek_OCR", setup)
            with _loaded(AutoModel=vendor.model, AutoTokenizer=vendor.tokenizer):
                helper.convert_deepseek_ocr("mini", Path(folder))
            self._model = helper.OVDeepseekOCRForCausalLM(folder)
        self._tokenizer = vendor.tokenizer
        self._image_id = self._tokenizer.convert_tokens_to_ids(IMAGE)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read a page by ``infer``, which prints its text and returns none."""
        original, found = self._model.generate, list[int]()

        def generate(input_ids: Tensor, **named: Any) -> None:
            named = {**named, "streamer": None, "max_new_tokens": max_new_tokens}
            found.extend(original(input_ids, **named)[0, input_ids.shape[1] :].tolist())

        self._infer(generate, page, prompt, preset)
        return str(self._tokenizer.decode(found)).removesuffix(self._tokenizer.eos_token)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return what ``infer`` hands to ``generate``."""
        found: dict[str, Any] = {}
        self._infer(lambda ids, **named: found.update(named, input_ids=ids), page, prompt, preset)
        return inputs_of(found)

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run vision, crops in front of the page, and watch its graph."""
        graph, seen = self._model.vision_embeddings, []

        def watched(pixels: Tensor) -> Any:
            seen.append(graph(pixels))
            return seen[-1]

        ids, mask, grid = inputs["input_ids"], inputs["images_seq_mask"], inputs[GRID]
        with mock.patch.object(self._model, "vision_embeddings", watched), _ignored():
            views = tuple(inputs[name].float() for name in PIXELS)
            embeds = self._model.prepare_inputs_embeds(ids, [views], mask, grid)
        if not seen:
            return {}
        seams = zip(VIEWS[-len(seen) :], seen, strict=True)
        return {
            **{f"projector.{place}": torch.from_numpy(found[0].copy()) for place, found in seams},
            "vision_fusion": embeds[mask],
        }

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> OpenVinoState:
        """Run the prompt with these features at its image tokens."""
        language, ids = self._model.language_model, inputs["input_ids"]
        embeds = torch.from_numpy(language.embed_tokens(ids).copy())
        if vision_fusion is not None:
            embeds[inputs["images_seq_mask"]] = vision_fusion
        state = OpenVinoState(language.request, torch.empty(0))
        return self._fed(state, input_ids=ids, inputs_embeds=embeds)

    def step(self, state: OpenVinoState, token: int) -> Tensor:
        """Feed one token."""
        mask = torch.ones(1, state.length + 1, dtype=torch.long)
        ids = torch.tensor([[token]])
        return self._fed(state, input_ids=ids, attention_mask=mask, past_key_values=NOT_EMPTY).logits

    def _fed(self, state: OpenVinoState, **named: Any) -> OpenVinoState:
        with _ignored():
            state.logits = self._model.language_model.forward(**named).logits[0, -1].clone()
        return state

    def _infer(self, generate: Callable[..., None], page: Path, prompt: str, preset: Preset) -> None:
        """Call ``infer`` with this in the place of ``generate``, and with the image's id in this vocabulary."""

        def called(input_ids: Tensor, **named: Any) -> None:
            generate(input_ids.masked_fill(input_ids == VENDOR_IMAGE_ID, self._image_id), **named)

        sizes = {"base_size": preset.base_size, "image_size": preset.image_size, "crop_mode": preset.crop}
        patched = mock.patch.object(self._model, "generate", called)
        with tempfile.TemporaryDirectory() as out, patched, redirect_stdout(StringIO()), _ignored():
            self._model.infer(self._tokenizer, prompt, str(page), out, **sizes)


_ignored = partial(warnings.catch_warnings, action="ignore")
"""Warnings of torch's and transformers' own."""


@contextmanager
def _loaded(**kinds: Any) -> Iterator[None]:
    """Let transformers' classes load these."""
    with ExitStack() as patches:
        for name, made in kinds.items():
            patches.enter_context(mock.patch(f"transformers.{name}.from_pretrained", lambda *_, of=made, **__: of))
        yield
