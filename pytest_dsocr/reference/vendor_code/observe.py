"""Run the vendor's real ``infer`` on one page and watch it from outside: what it hands on, stage by stage.

Tensors are seen through forward hooks, its reading of its own output through the two functions that do it. What is
changed is the ceiling of ``generate``, which ``infer`` hard-codes, and, for a vocabulary of other
size, the image token's id.
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
"""Called as a stage ends with its name and how often it has ended; ``token`` for each token."""


@dataclass
class VendorRun:
    """What one ``infer`` did. Seams of the crops come first, then those of the page."""

    generate_kwargs: dict[str, Any] = field(default_factory=dict)
    """``input_ids``, ``images``, masks and decoding arguments, as handed to ``generate``."""
    encoded: dict[str, list[Tensor]] = field(default_factory=dict)
    """What the stages of the views gave, by stage and in their order."""
    deep: dict[str, Seam] = field(default_factory=dict)
    """What each block and layer gave, summed up."""
    prompt_embeds: Tensor | None = None
    """The decoder's input, vision tokens scattered in: ``[1, S, C]``."""
    prefill_logits: Tensor | None = None
    """Float32 logits of the first token, ``[V]``."""
    best: list[Best] = field(default_factory=list)
    """The best of each step's."""
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    """What ``infer`` searched for spans: decoded and stripped. Empty in ``eval_mode``."""
    spans: list[tuple[str, Any]] = field(default_factory=list)
    """Label and coordinates of each span, as ``infer`` evaluated them; None where it could not."""
    counted: dict[str, list[int]] = field(default_factory=dict)
    """Operations of each call of a view's stage, and of the whole model as ``token``: the first holds vision and
    prefill."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every token with the best that it was chosen from."""
        return tuple(Step(token, best) for token, best in zip(self.token_ids, self.best, strict=True))

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The tensors handed to ``generate``, named as the fields of ``Inputs``."""
        return inputs_of(self.generate_kwargs)

    @property
    def seams(self) -> dict[str, Tensor]:
        """Every vision seam, under the names of :attr:`pytest_dsocr.engine.pipeline.Vision.seams`.

        None where the vendor's image gate was shut.
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
    """Call ``model.infer`` and give what was seen.

    Args:
        model: the vendor's model.
        tokenizer: what ``infer`` asks of a tokenizer.
        case: the page, the prompt, sizes and crop mode, and the ceiling in place of the vendor's.
        out: where ``infer`` writes.
        image_id: the image token's id in this vocabulary; the vendor's own if left out.
        keep_tensors: keep the seams, deep ones too, and the best of each step; without, only the tokens.
        count_flops: count what each stage computes.
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
    if case.is_several:  # of which only the pages by themselves are searched
        run.text = clean_output(tokenizer.decode(run.token_ids))
    if watch.best:
        run.best = fetched_best(*watch.best.fetch())
    run.deep = seen.seams if seen else {}
    return run


def _infer(model: Any, case: Case) -> Callable[..., Any]:
    """Return the vendor's function for a page, or for several in one prompt, with what it is asked."""
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
    """Return torch's counter, which also counts the attention that SAM and CLIP run on the CPU, as the GPU's is."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    of_shapes = {on_cpu: lambda query, key, value, *_, **__: int(sdpa_flop_count(query, key, value))}
    return FlopCounterMode(display=False, custom_mapping=of_shapes)


def inputs_of(generate_kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among ``generate``'s arguments, named as the fields of ``Inputs``."""
    [(crops, page)] = generate_kwargs["images"]
    rows = {name: generate_kwargs[name] for name in (*ROWS, GRID)}
    return {**rows, "images_crop": crops, "images_ori": page}


class _Watch:
    """Hooks that copy what passes between the vendor's modules, and read the counter there."""

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
        """Count from the end of the encoder before, so that what joins two encoders counts as the later one's."""
        starts_afresh = name in (self.encoders[0].name, "token")
        opened: list[int] = []

        def before(*_: Any) -> None:
            opened.append(self._read() if starts_afresh else self.last)

        def after(_module: nn.Module, _args: Any, out: Any) -> None:
            self.last = self._read()
            calls = self.run.counted.setdefault(name, [])
            calls.append(self.last - opened.pop())
            if self.keep:
                keep(out.clone() if isinstance(out, Tensor) else out)  # later code may write into it
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
        logits = out.logits[0, -1].float().clone()  # the prompt's are of all its tokens
        if self.run.prefill_logits is None:
            self.run.prefill_logits = logits
        self.best.add(logits)


@contextlib.contextmanager
def _generate_called_with(model: Any, run: VendorRun, case: Case, image_id: int | None) -> Iterator[None]:
    """Record what ``generate`` is called with and returns."""
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
    """Note the text that ``infer`` searches for spans, and how it reads each."""
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
