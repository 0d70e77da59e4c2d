"""A subject's methods, each of which gives what the protocol says or raises a :class:`SubjectFaultError`.

Shapes: S prompt tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.answer import VISION_SEAMS
from pytest_dsocr.case import Case
from pytest_dsocr.compare.artefacts import MMD
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.subjects.fault import SubjectFaultError, at_stage
from pytest_dsocr.subjects.protocol import DecodeView, TextSubject, level_of

INPUTS = tuple(field.name for field in fields(Inputs))
ROWS = ("input_ids", "images_seq_mask")


class CheckedSubject:
    """Any subject, asked through here.

    Args:
        subject: what fulfils one of the protocols of :mod:`pytest_dsocr.subjects.protocol`.

    Raises:
        DsocrError: where it fulfils none.
    """

    def __init__(self, subject: TextSubject) -> None:
        self.subject: Any = subject
        self.level = level_of(subject)

    @property
    def policy(self) -> DecodePolicy | None:
        """How it says that it chooses tokens; None is as the vendor does."""
        policy: DecodePolicy | None = getattr(self.subject, "policy", None)
        return policy

    @property
    def writes(self) -> bool:
        """Whether it writes files."""
        return callable(getattr(self.subject, "write", None))

    @property
    def tells_text(self) -> bool:
        """Whether it turns tokens into text, so that equal tokens need not be read again."""
        return callable(getattr(self.subject, "text_of", None))

    @property
    def promised(self) -> frozenset[str]:
        """The seams that it must give where the reference has them."""
        declared = frozenset(getattr(self.subject, "seams", ()))
        if unknown := sorted(declared.difference(VISION_SEAMS)):
            raise SubjectFaultError("vision", f"the subject's seams name {unknown[0]}; {_valid_seams()}")
        return declared | {"vision_fusion", "prefill"}

    def read(self, case: Case) -> str:
        """Give what it reads, with its markup."""
        page = case.page.absolute()  # the subject may have a working directory of its own
        with at_stage("read", "read"):
            text = self.subject.read(page, prompt=case.prompt, preset=case.preset, max_new_tokens=case.max_new_tokens)
        return _text("read", "read", text)

    def inputs(self, case: Case) -> dict[str, Tensor]:
        """Give what goes into its model, at least the vendor's five tensors."""
        page = case.page.absolute()
        with at_stage("tokenizer", "inputs"):
            given = self.subject.inputs(page, prompt=case.prompt, preset=case.preset)
        tensors = _tensors("tokenizer", "inputs", given)
        if absent := [name for name in INPUTS if name not in tensors]:
            raise SubjectFaultError("tokenizer", f"the subject's inputs lack {', '.join(absent)}; give these as well")
        for name in ROWS:
            if tensors[name].ndim != 2 or len(tensors[name]) != 1:
                raise _misshapen("tokenizer", "inputs", name, tensors[name], "[1, S]")
        if tensors["images_spatial_crop"].ndim != 2:
            raise _misshapen("tokenizer", "inputs", "images_spatial_crop", tensors["images_spatial_crop"], "[N, 2]")
        return tensors

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give its vision's seams; none where the gate is shut."""
        with at_stage("vision", "vision"):
            given = self.subject.vision(inputs)
        tensors = _tensors("vision", "vision", given)
        if unknown := [name for name in tensors if name not in VISION_SEAMS]:
            raise SubjectFaultError("vision", f"the subject's vision gave {unknown[0]}; {_valid_seams()}")
        if tensors and "vision_fusion" not in tensors:
            raise SubjectFaultError("vision", "the subject's vision gave no vision_fusion; give what goes into prefill")
        return tensors

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> tuple[DecodeView, Tensor]:
        """Give where decoding then stands, and the logits of the first token ``[V]``, float32."""
        with at_stage("prefill", "prefill"):
            state: DecodeView = self.subject.prefill(inputs, vision_fusion)
            logits = getattr(state, "logits", None)
        return state, _logits("prefill", "prefill gave a state with", logits)

    def step(self, state: DecodeView, token: int) -> Tensor:
        """Feed one token; gives the next logits ``[V]``, float32."""
        with at_stage("decode", "step"):
            logits = self.subject.step(state, token)
        return _logits("decode", "step gave", logits)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Give the text of tokens."""
        with at_stage("postprocess", "text_of"):
            text = self.subject.text_of(list(token_ids))
        return _text("postprocess", "text_of", text)

    def write(self, text: str, page: Path, folder: Path) -> None:
        """Have the files written that the vendor writes, ``result.mmd`` at least."""
        page, folder = page.absolute(), folder.absolute()
        with at_stage("postprocess", "write"):
            self.subject.write(text, page, folder)
        if not (folder / MMD).is_file():
            raise SubjectFaultError("postprocess", f"the subject's write left no {MMD} in the folder; write it there")


def _text(stage: str, method: str, given: object) -> str:
    if not isinstance(given, str):
        raise SubjectFaultError(stage, f"the subject's {method} gave {_kind(given)}; give the text, a str")
    return given


def _tensors(stage: str, method: str, given: object) -> dict[str, Tensor]:
    if not isinstance(given, Mapping):
        raise SubjectFaultError(
            stage, f"the subject's {method} gave {_kind(given)}; give a mapping of names to tensors"
        )
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise SubjectFaultError(stage, f"the subject's {method} gave {_kind(value)} for {name}; give a tensor")
        _check_values(stage, f"{method} gave", name, value)
    return dict(given)


def _logits(stage: str, given_by: str, given: object) -> Tensor:
    if not isinstance(given, Tensor):
        raise SubjectFaultError(stage, f"the subject's {given_by} {_kind(given)} for logits; give a tensor [V]")
    _check_values(stage, given_by, "logits", given)
    if given.ndim == 0 or given.numel() != given.shape[-1]:
        raise SubjectFaultError(stage, f"the subject's {given_by} logits of shape {list(given.shape)}; give [V]")
    logits = given.detach().float().flatten()
    if nans := int(logits.isnan().sum()):
        raise SubjectFaultError(
            stage, f"the subject's {given_by} {nans} NaN among {len(logits)} logits; give finite ones"
        )
    return logits


def _check_values(stage: str, given_by: str, name: str, given: Tensor) -> None:
    """Refuse a tensor whose values cannot be looked at."""
    if given.is_meta or given.layout is not torch.strided or given.is_quantized:
        kind = "on the meta device" if given.is_meta else str(given.layout) if not given.is_quantized else "quantized"
        raise SubjectFaultError(
            stage, f"the subject's {given_by} {name} that is {kind}; give a dense tensor with values in it"
        )


def _misshapen(stage: str, method: str, name: str, given: Tensor, shape: str) -> SubjectFaultError:
    return SubjectFaultError(stage, f"the subject's {method} gave {name} of shape {list(given.shape)}; give {shape}")


def _valid_seams() -> str:
    return f"the seams are {', '.join(VISION_SEAMS)}"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}" if value is not None else "None"
