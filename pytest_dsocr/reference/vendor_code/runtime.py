"""The vendor's model with a checkpoint's weights, as the worker of a live reference runs it."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.markup import LARGEST, Box
from pytest_dsocr.contract.prompt import BOS, EOS, PAD
from pytest_dsocr.engine.checkpoint import Checkpoint, device_named, dtype_named, resolve
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary
from pytest_dsocr.engine.weights import OnBytes
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import load
from pytest_dsocr.records.block_seams import in_stage_order
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance, device_class
from pytest_dsocr.records.reference_result import (
    BEST_OF_PREFILL,
    Artefact,
    Best,
    InputsDigest,
    Output,
    ReferenceResult,
    Seam,
    SpanSeen,
)
from pytest_dsocr.reference.protocol import OnProgress, provenance_of
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from pytest_dsocr.reference.vendor_code.observe import VendorRun, observe_infer

FLOP_TOKENS = 2  # the prefill's and one of a decode step


def check_ring(model: Any, ring: int | None) -> None:
    """Raise ``DsocrError`` if ``infer`` ran a model without its ring, or with another one.

    The decoder takes the ring's size from the config, where ``infer`` puts it. Without it, it attends to all tokens.
    """
    if ring is not None and (own := getattr(model.config, "_ring_window", None)) != ring:
        raise DsocrError(
            f"the code in this folder ran with a ring of {own or 'no'} tokens, and the model keeps {ring}; "
            "it is no reference; give the vendor's own files"
        )


@dataclass(frozen=True)
class VendorRuntime:
    """The vendor's loaded model and tokenizer.

    Only the vendor's environment can create it; elsewhere use :class:`~pytest_dsocr.reference.live.LiveReference`.
    """

    model: Any
    tokenizer: Any
    image_id: int
    provenance: Provenance
    """Provenance of its answers."""
    on_progress: OnProgress
    ring: int | None = None
    """Generated tokens that the model's cache keeps; None for all."""

    @classmethod
    def load(
        cls,
        vendor: Path,
        checkpoint: str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attention: str = "eager",
        command: str = "",
        on_progress: OnProgress = lambda what, done, total: None,
    ) -> VendorRuntime:
        """Import the vendor's files from the folder ``vendor`` and load ``checkpoint`` into its model.

        Raises:
            DsocrError: if a file, the checkpoint or the device is missing, or the vendor's code cannot run the
                checkpoint.
        """
        logging.getLogger("transformers").setLevel(logging.ERROR)  # it warns about old code
        code, found = load_vendor_code(vendor), resolve(checkpoint)
        special = found.tokenizer.special
        if special.bos != 0:
            raise DsocrError(
                f"the vendor's infer puts BOS 0 in front, and {checkpoint} has {special.bos}; it cannot run"
            )
        weights = partial(on_progress, "weights")
        model = load_vendor_model(code, found, device=device, dtype=dtype, attention=attention, on_progress=weights)
        of_code = {"vendor_sha256": code.sha256, "overrides": _overrides(code, found, device, dtype)}
        made = provenance_of(found, device_class(device), dtype, attention, command, **of_code)
        ring = found.architecture.family.cache.ring
        return cls(model, vendor_tokenizer(found), special.image, made, on_progress, ring)

    def observe(self, case: Case, *, keep_values: bool = False, out: Path | None = None) -> ReferenceResult:
        """Run ``infer`` and return the result.

        Args:
            case: the case to read.
            keep_values: keep tensors besides their summaries, except those of single blocks.
            out: folder to which the files of ``infer`` are added.
        """
        with tempfile.TemporaryDirectory() as scratch:
            run = self._run(case, Path(scratch), save_results=True)
            output = _output(run, Path(scratch), case.family.form.result_file)
            if out:
                shutil.copytree(scratch, out, dirs_exist_ok=True)
        assert run.prefill_logits is not None
        tensors = {**run.seams, "prefill": run.prefill_logits}
        seams = {name: Seam.of(tensor, keep_values=keep_values) for name, tensor in tensors.items()}
        return ReferenceResult(
            case_id=case.id,
            inputs=InputsDigest.of(run.inputs, keep_values=keep_values),
            seams=in_stage_order({**seams, **run.deep}),
            prefill_best=Best.of(run.prefill_logits, BEST_OF_PREFILL),
            steps=run.steps,
            output=output,
            provenance=self.provenance.with_ceiling(case.max_new_tokens, case.family),
        )

    def flops(self, case: Case) -> Mapping[str, int]:
        """Return the operations of each stage; ``prefill`` includes the fusion, ``decode`` is the first step."""
        with tempfile.TemporaryDirectory() as scratch:
            short = replace(case, max_new_tokens=FLOP_TOKENS)
            counted = self._run(short, Path(scratch), keep_tensors=False, count_flops=True).counted
        prefill, *steps = counted.pop("token")
        of_views = {stage: sum(calls) for stage, calls in counted.items()}
        decode = {"decode": steps[0]} if steps else {}
        return {**of_views, "prefill": prefill - sum(of_views.values()), **decode}

    def _run(self, case: Case, out: Path, **options: Any) -> VendorRun:
        def on_stage(stage: str, times: int) -> None:
            self.on_progress(stage, times, case.max_new_tokens if stage == "token" else None)

        load(case.family.vendor.model).check(self.model)
        run = observe_infer(self.model, self.tokenizer, case, out, image_id=self.image_id, on_stage=on_stage, **options)
        check_ring(self.model, self.ring)
        return run


def _output(run: VendorRun, folder: Path, result: str) -> Output:
    spans = tuple(SpanSeen(label, _boxes(coordinates)) for label, coordinates in run.spans)
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    artefacts = {name: Artefact.of(path) for name, path in files.items()}
    mmd = files[result].read_bytes().decode()
    return Output(run.text, spans, mmd, artefacts)


def _boxes(coordinates: Any) -> tuple[Box, ...]:
    """Return the boxes that the vendor draws: all up to the first that does not consist of four numbers."""
    items = coordinates if isinstance(coordinates, list | tuple) else ()
    return tuple(Box(*points) for points in takewhile(_is_box, items))


def _is_box(points: Any) -> bool:
    if not isinstance(points, list | tuple) or len(points) != 4:
        return False
    return all(isinstance(value, int | float) and -LARGEST < value < LARGEST for value in points)


def _overrides(code: VendorCode, checkpoint: Checkpoint, device: str, dtype: str) -> tuple[str, ...]:
    found = [*code.overrides]
    if not _is_the_vendors(checkpoint.architecture):
        found.append(f"builders of {code.family.vendor.built}: other dimensions")
    image, vendors = checkpoint.tokenizer.special.image, checkpoint.architecture.family.special.image
    if image != vendors:
        found.append(f"image token: id {image} in place of {vendors}")
    if device == "cpu":
        found.append("Tensor.cuda: stays on the CPU")
        if dtype != "bfloat16":
            found.append(f"pixels: cast from bfloat16 to the weights' {dtype} in front of SAM")
    return tuple(found)


def synthetic_tokenizer(vocab_size: int) -> Any:
    """Return transformers' tokenizer with the synthetic vocabulary."""
    tokens = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=byte_level_vocabulary(vocab_size), clean_up_tokenization_spaces=False, **tokens)


def vendor_tokenizer(checkpoint: Checkpoint) -> Any:
    """Return the checkpoint's tokenizer in transformers, loaded as in the vendor's model card."""
    if checkpoint.folder:
        return AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True)
    return synthetic_tokenizer(checkpoint.architecture.decoder.vocab_size)


def load_vendor_model(
    code: VendorCode,
    checkpoint: Checkpoint,
    *,
    device: str,
    dtype: str,
    attention: str,
    on_progress: OnBytes | None = None,
) -> Any:
    """Build the vendor's model and load ``checkpoint`` into it.

    The model is built in float32 and then cast, as by ``model.to(torch.bfloat16)`` in the model card, which rounds the
    rotary frequencies too.

    Raises:
        DsocrError: if the code is of another model.
    """
    asked = checkpoint.architecture.family
    if asked.name != code.family.name:
        found = f"{checkpoint.name} is a checkpoint of {asked.title}, and the vendor's folder has the code of"
        raise DsocrError(f"{found} {code.family.title}; name the folder with that of {asked.title}, or another model")
    place = device_named(device)
    with place:
        model = build_vendor_model(code, checkpoint.architecture, attention)
    model = model.to(dtype_named(dtype))
    checkpoint.load_into(model, on_progress=on_progress)
    return model


def build_vendor_model(code: VendorCode, arch: Architecture, attention: str = "eager") -> Any:
    """Build the vendor's model with the dimensions of ``arch`` instead of the hard-coded ones."""
    modeling = code.modeling
    name = code.family.vendor.architecture
    of_config, of_model = getattr(modeling, f"{name.removesuffix('ForCausalLM')}Config"), getattr(modeling, name)
    config = of_config(**arch.to_config(), attn_implementation=attention)
    if _is_the_vendors(arch):
        return of_model(config).eval()
    builders = load(arch.family.vendor.builders)(modeling, code.encoder, arch)
    with mock.patch.dict(vars(modeling), builders):
        model = of_model(config)
    for name in arch.family.vectors:
        setattr(model.model, name, nn.Parameter(torch.zeros(arch.decoder.hidden_size)))
    return model.eval()


def _is_the_vendors(arch: Architecture) -> bool:
    published = Architecture.published(arch.family)
    return (arch.encoder, arch.decoder.hidden_size) == (published.encoder, published.decoder.hidden_size)
