"""The vendor's code in this process, filled with a checkpoint's weights: the reference as its worker runs it."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pytest_dsocr.contract.markup import LARGEST, Box
from pytest_dsocr.contract.prompt import BOS, EOS, PAD
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.checkpoint import Checkpoint, device_named, dtype_named, resolve
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary
from pytest_dsocr.engine.weights import OnBytes
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.block_seams import in_stage_order
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import (
    BEST_OF_PREFILL,
    Artefact,
    Best,
    InputsDigest,
    Observation,
    Output,
    Seam,
    SpanSeen,
)
from pytest_dsocr.observation.provenance import Provenance, device_class
from pytest_dsocr.reference.protocol import OnProgress, provenance_of
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from pytest_dsocr.reference.vendor_code.observe import VENDOR_IMAGE_ID, VendorRun, observe_infer

FLOP_TOKENS = 2  # the prefill's and one of a decode step


@dataclass(frozen=True)
class VendorRuntime:
    """The vendor's model and tokenizer, ready for cases.

    Only for an environment in which the vendor's code runs; for all others there is
    :class:`~pytest_dsocr.reference.live.LiveReference`.
    """

    model: Any
    tokenizer: Any
    image_id: int
    provenance: Provenance
    """How the answers are made."""
    on_progress: OnProgress

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
            DsocrError: where a file, the checkpoint or the device is not available, or the vendor's code cannot run
                the checkpoint.
        """
        logging.getLogger("transformers").setLevel(logging.ERROR)  # it has much to say of code of this age
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
        return cls(model, vendor_tokenizer(found), special.image, made, on_progress)

    def observe(self, case: Case, *, keep_values: bool = False, out: Path | None = None) -> Observation:
        """Run ``infer`` and give all that was seen.

        Args:
            case: what to read.
            keep_values: keep the tensors themselves beside their summaries, but those of the deep seams.
            out: where ``infer``'s files are put, in addition to what is there.
        """
        with tempfile.TemporaryDirectory() as scratch:
            run = self._run(case, Path(scratch), save_results=True)
            output = _output(run, Path(scratch), case.family.form.result_file)
            if out:
                shutil.copytree(scratch, out, dirs_exist_ok=True)
        assert run.prefill_logits is not None
        tensors = {**run.seams, "prefill": run.prefill_logits}
        seams = {name: Seam.of(tensor, keep_values=keep_values) for name, tensor in tensors.items()}
        return Observation(
            case_id=case.id,
            inputs=InputsDigest.of(run.inputs, keep_values=keep_values),
            seams=in_stage_order({**seams, **run.deep}),
            prefill_best=Best.of(run.prefill_logits, BEST_OF_PREFILL),
            steps=run.steps,
            output=output,
            provenance=self.provenance.with_ceiling(case.max_new_tokens, case.family),
        )

    def flops(self, case: Case) -> Mapping[str, int]:
        """Return each stage's operations; ``prefill`` holds the fusion, ``decode`` is the first step's."""
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

        return observe_infer(
            self.model, self.tokenizer, case, out, image_id=self.image_id, on_stage=on_stage, **options
        )


def _output(run: VendorRun, folder: Path, result: str) -> Output:
    spans = tuple(SpanSeen(label, _boxes(coordinates)) for label, coordinates in run.spans)
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    artefacts = {name: Artefact.of(path) for name, path in files.items()}
    mmd = files[result].read_bytes().decode()
    return Output(run.text, spans, mmd, artefacts)


def _boxes(coordinates: Any) -> tuple[Box, ...]:
    """Return the boxes that the vendor goes on to draw: those in front of the first that is not four numbers."""
    items = coordinates if isinstance(coordinates, list | tuple) else ()
    return tuple(Box(*points) for points in takewhile(_is_box, items))


def _is_box(points: Any) -> bool:
    if not isinstance(points, list | tuple) or len(points) != 4:
        return False
    return all(isinstance(value, int | float) and -LARGEST < value < LARGEST for value in points)


def _overrides(code: VendorCode, checkpoint: Checkpoint, device: str, dtype: str) -> tuple[str, ...]:
    found = [*code.overrides, *build_overrides(checkpoint.architecture)]
    if checkpoint.tokenizer.special.image != VENDOR_IMAGE_ID:
        found.append(f"image token: id {checkpoint.tokenizer.special.image} in place of {VENDOR_IMAGE_ID}")
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
    """Return transformers' own tokenizer of the checkpoint, as the vendor's card loads it."""
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

    It is built in float32 and cast, as the model card's ``model.to(torch.bfloat16)`` does, so that the rotary
    frequencies are rounded with the rest.

    Raises:
        DsocrError: where the code is another family's.
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
    """Build the vendor's model with ``arch``'s dimensions in place of those its builders hard-code."""
    modeling = code.modeling
    name = code.family.vendor.architecture
    of_config, of_model = getattr(modeling, f"{name.removesuffix('ForCausalLM')}Config"), getattr(modeling, name)
    config = of_config(**arch.to_config(), attn_implementation=attention)
    if _is_the_vendors(arch):
        return of_model(config).eval()
    with mock.patch.dict(vars(modeling), _builders(code, arch)):
        model = of_model(config)
    for name in ("image_newline", "view_seperator"):
        setattr(model.model, name, nn.Parameter(torch.zeros(arch.decoder.hidden_size)))
    return model.eval()


def build_overrides(arch: Architecture) -> list[str]:
    """Say what :func:`build_vendor_model` puts in the place of the vendor's own for ``arch``."""
    if _is_the_vendors(arch):
        return []
    return ["builders of SAM, CLIP, projector, newline and separator: other dimensions"]


def _is_the_vendors(arch: Architecture) -> bool:
    published = replace(Architecture(), decoder=arch.decoder, family=arch.family)
    return arch == published and arch.decoder.hidden_size == Architecture().decoder.hidden_size


def _builders(code: VendorCode, arch: Architecture) -> dict[str, Callable[..., Any]]:
    projector = code.modeling.MlpProjector

    def sized_projector(cfg: Any) -> Any:
        cfg.input_dim, cfg.n_embed = arch.projector_input, arch.decoder.hidden_size
        return projector(cfg)

    return {
        "build_sam_vit_b": lambda: _build_sam(code.encoder, arch),
        "build_clip_l": lambda: _build_clip(code.encoder, arch),
        "MlpProjector": sized_projector,
    }


def _build_sam(encoder: Any, arch: Architecture) -> nn.Module:
    sam = arch.sam

    def norm(width: int) -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=sam.layer_norm_eps)

    model: nn.Module = encoder.ImageEncoderViT(
        depth=sam.layers,
        embed_dim=sam.width,
        img_size=sam.image_size,
        mlp_ratio=sam.mlp_ratio,
        norm_layer=norm,
        num_heads=sam.heads,
        patch_size=sam.patch_size,
        use_rel_pos=True,
        global_attn_indexes=sam.global_attn_indexes,
        window_size=sam.window_size,
        out_chans=sam.neck_channels,
    )
    middle, last = sam.downsample_channels
    model.net_2 = nn.Conv2d(sam.neck_channels, middle, kernel_size=3, stride=2, padding=1, bias=False)
    model.net_3 = nn.Conv2d(middle, last, kernel_size=3, stride=2, padding=1, bias=False)
    return model.eval()


def _build_clip(encoder: Any, arch: Architecture) -> nn.Module:
    clip = arch.clip
    config = type(encoder.vit_model_cfg)(encoder.vit_model_cfg)
    config.update(
        num_layers=clip.layers,
        hidden_size=clip.width,
        num_heads=clip.heads,
        num_attention_heads=clip.heads,
        ffn_hidden_size=clip.width * clip.mlp_ratio,
        layernorm_epsilon=clip.layer_norm_eps,
        pre_layernorm_epsilon=clip.layer_norm_eps,
        image_size=clip.image_size,
        patch_size=clip.patch_size,
    )
    model: nn.Module = encoder.VitModel(cfg=config)
    return model
