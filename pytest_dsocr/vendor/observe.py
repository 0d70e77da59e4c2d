"""Run the vendor's real ``infer`` on one page and watch it from outside: what it hands on, stage by stage.

Everything is seen through forward hooks. The one thing changed is the ceiling of ``generate``, which ``infer``
hard-codes at 8192 new tokens.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.special import TextTokenizer
from pytest_dsocr.vendor.code import vendor_on_cpu


class InferTokenizer:
    """A tokenizer of this project with the methods that ``infer`` and its streamer call."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.special.eos

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Give the ids of ``text``; ``infer`` never asks for special tokens."""
        assert not add_special_tokens
        return self._tokenizer.encode(text)

    def decode(self, ids: Any, **_: Any) -> str:
        """Give the text of ``ids``, special tokens kept."""
        return self._tokenizer.decode([int(token) for token in ids])


@dataclass
class VendorRun:
    """What one ``infer`` did. Seams of the crops come first, then those of the page."""

    generate_kwargs: dict[str, Any] = field(default_factory=dict)
    """``input_ids``, ``images``, masks and decoding arguments, as handed to ``generate``."""
    sam: list[Tensor] = field(default_factory=list)
    clip: list[Tensor] = field(default_factory=list)
    projector: list[Tensor] = field(default_factory=list)
    prompt_embeds: Tensor | None = None
    """The decoder's input, vision tokens scattered in: ``[1, S, C]``."""
    step_logits: list[Tensor] = field(default_factory=list)
    """Float32 logits that each token was chosen from, ``[V]``; the first are the prefill's."""
    token_ids: list[int] = field(default_factory=list)
    prepare_ms: float = 0.0
    """From the call of ``infer`` to that of ``generate``: loading, cropping, ids and mask."""
    forward_ms: list[float] = field(default_factory=list)
    """Milliseconds of each forward of the whole model; the first holds vision and prefill."""
    stage_ms: dict[str, float] = field(default_factory=dict)

    @property
    def seams(self) -> dict[str, Tensor]:
        """Every vision seam, under the names of :attr:`pytest_dsocr.engine.pipeline.Vision.seams`."""
        views = ["crops", "page"] if len(self.sam) == 2 else ["page"]
        of_views = {
            f"{stage}.{view}": tensor
            for stage, tensors in (("sam", self.sam), ("clip", self.clip), ("projector", self.projector))
            for view, tensor in zip(views, tensors, strict=True)
        }
        assert self.prompt_embeds is not None, "the run kept no tensors"
        return {**of_views, "vision_fusion": self.prompt_embeds[self.generate_kwargs["images_seq_mask"]]}


def observe_infer(
    model: Any,
    tokenizer: Any,
    image_file: Path,
    output_folder: Path,
    *,
    prompt: str,
    preset: Preset,
    max_new_tokens: int,
    keep_tensors: bool = True,
    **infer_options: Any,
) -> VendorRun:
    """Call ``model.infer`` and give what was seen.

    Args:
        model: the vendor's model.
        tokenizer: what ``infer`` asks of a tokenizer.
        image_file: the page.
        output_folder: where ``infer`` writes.
        prompt: with its ``<image>``.
        preset: sizes and crop mode.
        max_new_tokens: the ceiling in the place of 8192.
        keep_tensors: keep the seams and logits; without, only times and tokens.
        **infer_options: ``save_results``, ``eval_mode``.
    """
    run = VendorRun()
    watch = _Watch(run, model.lm_head.weight.device, keep_tensors)
    on_cpu = vendor_on_cpu(model) if model.lm_head.weight.device.type == "cpu" else contextlib.nullcontext()
    with on_cpu, watch.hooks(model), _ceiling(model, run, max_new_tokens), contextlib.redirect_stdout(io.StringIO()):
        model.infer(
            tokenizer,
            prompt=prompt,
            image_file=str(image_file),
            output_path=str(output_folder),
            base_size=preset.base_size,
            image_size=preset.image_size,
            crop_mode=preset.crop,
            **infer_options,
        )
    watch.finish()
    return run


class _Watch:
    """Hooks that copy what passes between the vendor's modules, and mark when."""

    def __init__(self, run: VendorRun, device: torch.device, keep_tensors: bool) -> None:
        self.run, self.keep = run, keep_tensors
        self.on_gpu = device.type == "cuda"
        self.marks: list[tuple[str, Any, Any]] = []
        self.last: Any = None

    @contextlib.contextmanager
    def hooks(self, model: Any) -> Iterator[None]:
        core, run = model.model, self.run
        handles = [
            *self._timed("sam", core.sam_model, lambda out: run.sam.append(out)),
            *self._timed("clip", core.vision_model, lambda out: run.clip.append(out)),
            *self._timed("projector", core.projector, lambda out: run.projector.append(out)),
            *self._timed("forward", model, lambda out: run.step_logits.append(out.logits[0, -1])),
            core.layers[0].register_forward_pre_hook(self._prompt_embeds),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def finish(self) -> None:
        """Turn the marks into milliseconds."""
        if self.on_gpu:
            torch.cuda.synchronize()
        for name, start, end in self.marks:
            ms = start.elapsed_time(end) if self.on_gpu else (end - start) / 1e6
            if name == "forward":
                self.run.forward_ms.append(ms)
            else:
                self.run.stage_ms[name] = self.run.stage_ms.get(name, 0.0) + ms

    def _timed(self, name: str, module: nn.Module, keep: Callable[[Any], None]) -> list[Any]:
        """Time from the end of the encoder before, so that what joins two encoders counts as the later one's."""
        starts_afresh = name in ("sam", "forward")
        opened: list[Any] = []

        def before(*_: Any) -> None:
            opened.append(self._now() if starts_afresh else self.last)

        def after(_module: nn.Module, _args: Any, out: Any) -> None:
            self.last = self._now()
            self.marks.append((name, opened.pop(), self.last))
            if self.keep:
                keep(out)

        return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def _prompt_embeds(self, _module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if self.keep and self.run.prompt_embeds is None:
            self.run.prompt_embeds = args[0].clone()

    def _now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


@contextlib.contextmanager
def _ceiling(model: Any, run: VendorRun, max_new_tokens: int) -> Iterator[None]:
    original, called = model.generate, time.perf_counter()

    def generate(input_ids: Tensor, **kwargs: Any) -> Tensor:
        run.prepare_ms = (time.perf_counter() - called) * 1e3
        run.generate_kwargs = {"input_ids": input_ids, **kwargs}
        out: Tensor = original(input_ids, **{**kwargs, "max_new_tokens": max_new_tokens})
        run.token_ids = out[0, input_ids.shape[1] :].tolist()
        return out

    model.generate = generate
    try:
        yield
    finally:
        del model.generate
