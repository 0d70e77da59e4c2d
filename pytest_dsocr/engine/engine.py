"""A DeepSeek-OCR engine: a page and a prompt in, text and boxes out, every stage open to the caller."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, get_args

import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import ImageSource
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output, parse
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline, Vision, generate
from pytest_dsocr.engine.protocol import CacheT, OcrModel
from pytest_dsocr.engine.result import Counts, PageResult
from pytest_dsocr.engine.stages import Instrument, Stages
from pytest_dsocr.layers.attention import attention_function, check_flash_attention
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.spec import ModelSpec, load

EngineKind = Literal["readable", "fast"]
ENGINES: tuple[EngineKind, ...] = get_args(EngineKind)


class Engine(Generic[CacheT]):
    """A model and its tokenizer, ready to read pages.

    Args:
        model: the engine's model, or the vendor's in a :class:`~pytest_dsocr.engine.vendor_model.VendorModel`.
        tokenizer: the checkpoint's tokenizer.
        policy: when decoding stops; from the model's own limits if left out.
        instrument: ``off``, ``nvtx`` ranges, or ``timed`` ranges.
        autocast: run under CUDA autocast to bf16; if left out, on a GPU in bf16, as the vendor's ``infer`` does.
    """

    def __init__(
        self,
        model: OcrModel[CacheT],
        tokenizer: TextTokenizer,
        *,
        policy: DecodePolicy | None = None,
        instrument: Instrument = "nvtx",
        autocast: bool | None = None,
    ) -> None:
        if autocast is None:
            autocast = model.device.type == "cuda" and model.dtype == torch.bfloat16
        self.model = model
        self.tokenizer = tokenizer
        limit = model.max_position_embeddings
        self.policy = policy or model.family.decoding.for_model(tokenizer.special.eos, limit)
        if policy is None and limit is None:
            what = f"the vendor's {self.policy.max_length or self.policy.max_new_tokens} tokens"
            warnings.warn(
                f"the config has no max_position_embeddings, so an output ends at {what}; give a policy to choose",
                stacklevel=2,
            )
        self.stages = Stages(model.device, instrument)
        self.pipeline = Pipeline(model, self.stages, autocast=autocast)

    @staticmethod
    def from_checkpoint(
        path_or_name: str,
        *,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
        attention: str = "eager",
        round_rope: bool = True,
        engine: EngineKind = "readable",
        on_progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> Engine[KVCache]:
        """Load a checkpoint into the engine's model.

        Args:
            path_or_name: ``mini``, a folder, ``synthetic:tiny``, or a hub name that the local cache has.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            dtype: ``float32``, ``bfloat16`` or ``float16``.
            attention: ``eager``, ``sdpa`` or ``flash_attention_2``.
            round_rope: see :meth:`pytest_dsocr.engine.model.EngineModel.empty`.
            engine: ``readable``, equal to the vendor's code to the bit, or ``fast``, see ``engine.fast``.
            on_progress: called with the bytes loaded and their total.
            **options: the engine's own arguments.

        Raises:
            DsocrError: if any of them is not available; the message lists what is.
        """
        place, number_type, attend = device_named(device), dtype_named(dtype), attention_function(attention)
        checkpoint = resolve(path_or_name)
        if attention == "flash_attention_2" and place.type == "cuda":
            check_flash_attention(checkpoint.architecture.decoder.head_dim, place)
        kind = _model_class(engine, checkpoint.architecture.family)
        model = kind.empty(checkpoint.architecture, attend, place, number_type, round_rope=round_rope)
        checkpoint.load_into(model, on_progress=on_progress)
        if place.type == "cuda" or engine == "fast":
            model.stack_experts()
        return Engine(model, checkpoint.tokenizer, **options)

    @property
    def family(self) -> ModelSpec:
        """Family of the model."""
        return self.model.family

    def prepare(
        self, image: ImageSource | Sequence[ImageSource], *, prompt: str = "markdown", preset: str | Preset = "gundam"
    ) -> Inputs:
        """Turn one page, or one for each ``<image>`` of the prompt, into the model's inputs, on its device."""
        return self.family.prepare(image, prompt, preset, self.tokenizer, self.stages, self.model.device)

    def prefill(self, inputs: Inputs, *, all_logits: bool = False) -> DecodeState[CacheT]:
        """Run vision and the prompt; return a state with the seams, the cache and the first token's logits."""
        return self.pipeline.prefill(inputs, all_logits=all_logits)

    def decode_step(self, state: DecodeState[CacheT], token: int | Sequence[int]) -> torch.Tensor:
        """Feed one token (one a row); returns the next logits ``[B, V]`` and moves ``state`` on."""
        return self.pipeline.decode_step(state, [token] if isinstance(token, int) else token)

    def run(
        self,
        image: ImageSource | Sequence[ImageSource],
        *,
        prompt: str = "markdown",
        preset: str | Preset = "gundam",
        max_new_tokens: int | None = None,
    ) -> PageResult:
        """Read one page to its end."""
        self.stages.clear()
        inputs = self.prepare(image, prompt=prompt, preset=preset)
        return self.run_prepared(inputs, max_new_tokens=max_new_tokens)

    def run_prepared(
        self, inputs: Inputs, *, max_new_tokens: int | None = None, on_token: Callable[[int], None] | None = None
    ) -> PageResult:
        """Read a page whose inputs are made; ``on_token`` is called with each token as it comes."""
        return self._read([inputs], self._policy(max_new_tokens), on_token)[0]

    def run_batch(
        self,
        images: Sequence[ImageSource],
        *,
        prompt: str = "markdown",
        preset: str | Preset = "gundam",
        max_new_tokens: int | None = None,
    ) -> list[PageResult]:
        """Read several pages together; each result equals that of the page alone.

        Pages are prefilled one by one and decoded as the rows of one batch. Stage times are the batch's.
        """
        if not images:
            return []
        self.stages.clear()
        pages = [self.prepare(image, prompt=prompt, preset=preset) for image in images]
        return self._read(pages, self._policy(max_new_tokens))

    def _read(
        self, pages: Sequence[Inputs], policy: DecodePolicy, on_token: Callable[[int], None] | None = None
    ) -> list[PageResult]:
        states = [self.pipeline.prefill(inputs) for inputs in pages]
        state = states[0] if len(states) == 1 else self.pipeline.join(states)
        prompts = [inputs.input_ids[0].tolist() for inputs in pages]
        steps = []
        for step in generate(self.pipeline, state, prompts, policy, self.tokenizer.special.pad):
            steps.append(step)
            if on_token:
                on_token(step[0])
        rows = [[step[row] for step in steps[: policy.room(len(prompt))]] for row, prompt in enumerate(prompts)]
        results = [
            self._result_of(row, inputs, own.visions, state.steps, policy)
            for row, inputs, own in zip(rows, pages, states, strict=True)
        ]
        times = self.stages.times()
        self.stages.clear()
        return [replace(result, stage_times=times) for result in results]

    def _result_of(
        self, row: Sequence[int], inputs: Inputs, visions: Sequence[Vision], steps: int, policy: DecodePolicy
    ) -> PageResult:
        """Return a page's result from its tokens up to the EOS, without times."""
        tokens = until_end(row, policy.eos_id)
        with self.stages("postprocess"):
            text = clean_output(self.tokenizer.decode(tokens))
            markup = parse(text, self.family.form)
        views = sum(vision.views for vision in visions)
        counts = Counts(inputs.prompt_tokens, inputs.image_tokens, len(tokens), views, steps)
        return PageResult(text, tokens, markup, counts, "eos" if tokens[-1] == policy.eos_id else "length", {})

    def _policy(self, max_new_tokens: int | None) -> DecodePolicy:
        return self.policy if max_new_tokens is None else replace(self.policy, max_new_tokens=max_new_tokens)


def until_end(row: Sequence[int], eos_id: int) -> tuple[int, ...]:
    """Return a row's tokens up to its EOS; later ones only fill the batch while a longer row continues."""
    return tuple(row[: row.index(eos_id) + 1] if eos_id in row else row)


def _model_class(engine: str, family: ModelSpec) -> type[EngineModel]:
    if engine not in ENGINES:
        raise DsocrError(f"engine {engine!r} is unknown; choose one of {', '.join(ENGINES)}")
    where = family.model if engine == "readable" else family.fast_model
    if not where:
        raise DsocrError(f"there is no engine {engine!r} of {family.title}; choose readable")
    return load(where)
