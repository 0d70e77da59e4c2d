"""Run the vendor's unchanged ``infer`` on one page and observe the tensors between its stages.

Forward hooks copy tensors. Wrappers of two functions record how ``infer`` parses its output. Only the limit of tokens,
which ``infer`` hard-codes, and in a vocabulary of another size the image token's id are changed.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from pytest_dsocr.contract import GRID, ROWS
from pytest_dsocr.contract.image import files_of
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.models.spec import FUSION, VIEWS, ModelSpec
from pytest_dsocr.records.block_seams import watch_deep
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.columns import Columns, best_of_steps, fetched_best
from pytest_dsocr.records.reference_result import Best, Seam, Step
from pytest_dsocr.reference.vendor_code.code import vendor_on_cpu

OnStage = Callable[[str, int], None]
"""Callback at the end of a stage, with its name (``token`` for a token) and its number of calls so far."""


@dataclass
class VendorRun:
    """Observations of one ``infer``. Seams of the crops precede those of the page."""

    generate_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of ``generate``: ``input_ids``, ``images``, masks and decoding arguments."""
    encoded: dict[str, list[Tensor]] = field(default_factory=dict)
    """Outputs of the stages of the views, by stage, in order."""
    deep: dict[str, Seam] = field(default_factory=dict)
    """Summaries of the outputs of each block and layer."""
    prompt_embeds: Tensor | None = None
    """Input of the decoder with vision tokens: ``[1, S, C]``."""
    prefill_logits: Tensor | None = None
    """Float32 logits of the first token, ``[V]``."""
    best: list[Best] = field(default_factory=list)
    """Best logits of each step."""
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    """Decoded and stripped text that ``infer`` searched for spans. Empty in ``eval_mode``."""
    spans: list[tuple[str, Any]] = field(default_factory=list)
    """Label and coordinates of each span as ``infer`` evaluated them; None if it failed."""
    counted: dict[str, list[int]] = field(default_factory=dict)
    """Operations by call of a view's stage, and of the model as ``token``: the first includes vision and prefill."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every token with the best logits of its step."""
        return tuple(Step(token, best) for token, best in zip(self.token_ids, self.best, strict=True))

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Tensors among the arguments of ``generate``, named as the fields of ``Inputs``."""
        return inputs_of(self.generate_kwargs)

    @property
    def seams(self) -> dict[str, Tensor]:
        """Vision seams, named as in :attr:`pytest_dsocr.engine.pipeline.Vision.seams`.

        Empty if the vendor's code did not run vision.
        """
        if not self.encoded:
            return {}
        is_cut = bool((self.generate_kwargs[GRID].prod(dim=-1) > 1).any())
        of_views = {
            f"{stage}.{view}": tensor
            for stage, tensors in self.encoded.items()
            for view, tensor in zip(*((VIEWS, tensors) if is_cut else (VIEWS[1:], [torch.cat(tensors)])), strict=True)
        }
        assert self.prompt_embeds is not None
        return {**of_views, FUSION: self.prompt_embeds[self.generate_kwargs["images_seq_mask"]]}


def observe_infer(
    model: Any,
    tokenizer: Any,
    case: Case,
    out: Path,
    *,
    image_id: int | None = None,
    keep_tensors: bool = True,
    count_flops: bool = False,
    on_stage: OnStage = lambda stage, times: None,
    **infer_options: Any,
) -> VendorRun:
    """Call ``model.infer`` and return the observations.

    Args:
        model: the vendor's model.
        tokenizer: the tokenizer for ``infer``.
        case: page, prompt, preset, and the limit of tokens that replaces the vendor's.
        out: folder that ``infer`` writes to.
        image_id: the image token's id in this vocabulary, by default the vendor's own.
        keep_tensors: keep seams, also of blocks, and the best logits of each step; otherwise only tokens.
        count_flops: count the operations of each stage.
        on_stage: see :data:`OnStage`.
        **infer_options: ``save_results``, ``eval_mode``.
    """
    run = VendorRun()
    counter = flop_counter() if count_flops else None
    watch = _Watch(run, counter, keep_tensors, on_stage, case.family)
    on_cpu = vendor_on_cpu(model) if model.lm_head.weight.device.type == "cpu" else contextlib.nullcontext()
    deep = watch_deep(model.get_submodule) if keep_tensors else contextlib.nullcontext()
    counting = counter or contextlib.nullcontext()
    with (
        on_cpu,
        counting,
        watch.hooks(model),
        deep as seen,
        _listening(model, run),
        contextlib.redirect_stdout(io.StringIO()),
        _generate_called_with(model, run, case, image_id),
    ):
        _infer(model, case)(tokenizer, output_path=str(out), **infer_options)
    if case.is_several:  # infer_multi searches no spans
        run.text = clean_output(tokenizer.decode(run.token_ids))
    if watch.best:
        run.best = fetched_best(*watch.best.fetch())
    run.deep = seen.seams if seen else {}
    return run


def _infer(model: Any, case: Case) -> Callable[..., Any]:
    """Return the vendor's function for one page, or for several in one prompt, with its arguments."""
    files, preset = files_of(case.page), case.preset
    if isinstance(files, list):
        names = [*map(str, files)]
        return partial(model.infer_multi, prompt=case.prompt, image_files=names, image_size=preset.image_size)
    return partial(
        model.infer,
        prompt=case.prompt,
        image_file=str(files),
        base_size=preset.base_size,
        image_size=preset.image_size,
        crop_mode=preset.crop,
    )


def flop_counter() -> FlopCounterMode:
    """Return torch's counter, extended to the encoders' attention on a CPU, which torch counts only on a GPU."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    of_shapes = {on_cpu: lambda query, key, value, *_, **__: int(sdpa_flop_count(query, key, value))}
    return FlopCounterMode(display=False, custom_mapping=of_shapes)


def inputs_of(generate_kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among the arguments of ``generate``, named as the fields of ``Inputs``."""
    [(crops, page)] = generate_kwargs["images"]
    rows = {name: generate_kwargs[name] for name in (*ROWS, GRID)}
    return {**rows, "images_crop": crops, "images_ori": page}


class _Watch:
    """Hooks that copy tensors between the vendor's modules and read the counter."""

    def __init__(
        self, run: VendorRun, counter: FlopCounterMode | None, keep: bool, on_stage: OnStage, family: ModelSpec
    ) -> None:
        self.encoders = family.of_views
        self.run, self.counter, self.keep, self.on_stage = run, counter, keep, on_stage
        self.last = 0
        self.best = Columns(best_of_steps)

    @contextlib.contextmanager
    def hooks(self, model: Any) -> Iterator[None]:
        encoders = (
            self._watched(stage.name, model.get_submodule(stage.module), partial(self._keep_encoded, stage.name))
            for stage in self.encoders
        )
        handles = [
            *chain.from_iterable(encoders),
            *self._watched("token", model, self._keep_best),
            model.model.layers[0].register_forward_pre_hook(self._keep_prompt_embeds),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watched(self, name: str, module: nn.Module, keep: Callable[[Any], None]) -> list[Any]:
        """Add hooks to a module. Operations between two encoders count as the later one's."""
        starts_afresh = name in (self.encoders[0].name, "token")
        opened: list[int] = []

        def before(*_: Any) -> None:
            opened.append(self._read() if starts_afresh else self.last)

        def after(_module: nn.Module, _args: Any, out: Any) -> None:
            self.last = self._read()
            calls = self.run.counted.setdefault(name, [])
            calls.append(self.last - opened.pop())
            if self.keep:
                keep(out.clone() if isinstance(out, Tensor) else out)  # later code may change it in place
            self.on_stage(name, len(calls))

        return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def _read(self) -> int:
        return self.counter.get_total_flops() if self.counter else 0

    def _keep_encoded(self, stage: str, out: Tensor) -> None:
        self.run.encoded.setdefault(stage, []).append(out)

    def _keep_prompt_embeds(self, _module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if self.keep and self.run.prompt_embeds is None:
            self.run.prompt_embeds = args[0].clone()

    def _keep_best(self, out: Any) -> None:
        logits = out.logits[0, -1].float().clone()  # the prefill returns logits of all tokens
        if self.run.prefill_logits is None:
            self.run.prefill_logits = logits
        self.best.add(logits)


@contextlib.contextmanager
def _generate_called_with(model: Any, run: VendorRun, case: Case, image_id: int | None) -> Iterator[None]:
    """Record the arguments and the result of ``generate``."""
    original, vendors, max_new_tokens = model.generate, case.family.special.image, case.max_new_tokens

    def generate(input_ids: Tensor, **kwargs: Any) -> Tensor:
        if image_id not in (None, vendors):
            input_ids = input_ids.masked_fill(input_ids == vendors, image_id)
        run.generate_kwargs = {"input_ids": input_ids, **kwargs}
        ceiling = {"max_new_tokens": max_new_tokens}
        if (of_all := kwargs.get("max_length")) is not None:
            ceiling = {"max_length": min(of_all, input_ids.shape[1] + max_new_tokens)}
        out: Tensor = original(input_ids, **{**kwargs, **ceiling})
        run.token_ids = out[0, input_ids.shape[1] :].tolist()
        return out

    model.generate = generate
    try:
        yield
    finally:
        del model.generate


@contextlib.contextmanager
def _listening(model: Any, run: VendorRun) -> Iterator[None]:
    """Record the text that ``infer`` searches for spans, and how it parses each span."""
    names: dict[str, Any] = type(model).infer.__globals__
    search, read = names["re_match"], names["extract_coordinates_and_label"]

    def noted_search(text: str) -> Any:
        run.text = text
        return search(text)

    def noted_read(span: Any, *size_px: int) -> Any:
        found = read(span, *size_px)
        run.spans.append(found or (span[1], None))
        return found

    with mock.patch.dict(names, {"re_match": noted_search, "extract_coordinates_and_label": noted_read}):
        yield
