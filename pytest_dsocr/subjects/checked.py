"""A subject's methods, checked: each returns what the protocol states or raises a :class:`SubjectFaultError`.

Shapes: S prompt tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from pytest_dsocr.contract import GRID, ROWS, TENSORS
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.families import VISION_SEAMS
from pytest_dsocr.foundation.exact import exact
from pytest_dsocr.foundation.words import shown
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.subjects import values
from pytest_dsocr.subjects.calls import at_stage, current
from pytest_dsocr.subjects.protocol import DecodeView, Offers, TextSubject, level_of

T = TypeVar("T")
ALWAYS_PROMISED = frozenset(("vision_fusion", "prefill"))
"""The seams that every subject with stages must return."""


class CheckedSubject:
    """Any subject behind checks: its results are copied, and it may overwrite what it is given.

    Args:
        subject: what fulfils one of the protocols of :mod:`pytest_dsocr.subjects.protocol`.

    Raises:
        DsocrError: where it fulfils none.
    """

    def __init__(self, subject: TextSubject) -> None:
        self.subject: Any = subject
        self.level = level_of(subject)
        self.offers = Offers.of(subject)

    @property
    def policy(self) -> DecodePolicy | None:
        """How it declares that it chooses tokens; None means as the vendor does."""
        return self._own("decode", "policy", None, lambda given: None if given is None else values.policy(given))

    @property
    def first_token_ms(self) -> float | None:
        """The milliseconds of its last ``read`` until the first text, if it has them."""
        return self._own("read", "first_token_ms", None, lambda given: None if given is None else exact(float(given)))

    @property
    def ended_by(self) -> str:
        """Why its last ``read`` ended, if it says."""
        return self._own("read", "ended_by", "", lambda given: values.text("read", "ended_by", given))

    @property
    def writes(self) -> bool:
        """Whether it writes files."""
        return self._has("postprocess", "write")

    @property
    def reads_many(self) -> bool:
        """Whether it reads several pages together."""
        return self._has("read", "read_many")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """What its factory makes it in beside the run's own dtype."""
        return self._own("load", "dtypes", (), lambda given: exact(tuple(given)))

    @property
    def tells_text(self) -> bool:
        """Whether it turns tokens into text; then equal tokens need not be read again."""
        return self._has("postprocess", "text_of")

    @property
    def promised(self) -> frozenset[str]:
        """The seams that it must give where the reference has them."""
        declared = self._own("vision", "seams", (), lambda given: frozenset(exact(tuple(given))))
        if unknown := sorted(declared.difference(VISION_SEAMS), key=str):
            raise SubjectFaultError("vision", f"the subject's seams name {shown(unknown[0])}; {_valid_seams()}")
        return declared | ALWAYS_PROMISED

    def read(self, case: Case) -> str:
        """Return what it reads, with its markup, and without the white space around it, as the vendor strips it."""
        self.offers.check(case)
        page = case.page.absolute()  # the subject may have a working directory of its own
        current().read.append(case.id)
        with at_stage("read", "read"):
            text = self.subject.read(page, prompt=case.prompt, preset=case.preset, max_new_tokens=case.max_new_tokens)
        return values.text("read", "read", text).strip()

    def read_many(self, cases: Sequence[Case]) -> list[str]:
        """Return what it reads of several pages together; all but the page is the first case's."""
        pages, asked = [case.page.absolute() for case in cases], cases[0]
        with at_stage("read", "read_many"):
            texts = self.subject.read_many(
                pages, prompt=asked.prompt, preset=asked.preset, max_new_tokens=asked.max_new_tokens
            )
        return [text.strip() for text in values.texts("read", "read_many", texts, len(pages))]

    def inputs(self, case: Case) -> dict[str, Tensor]:
        """Return what goes into its model, at least the vendor's five tensors."""
        self.offers.check(case)
        page = case.page.absolute()
        with at_stage("tokenizer", "inputs"):
            given = self.subject.inputs(page, prompt=case.prompt, preset=case.preset)
        tensors = values.tensors("tokenizer", "inputs", given)
        if absent := [name for name in TENSORS if name not in tensors]:
            raise SubjectFaultError("tokenizer", f"the subject's inputs lack {', '.join(absent)}; give these as well")
        for name in ROWS:
            if tensors[name].ndim != 2 or len(tensors[name]) != 1:
                raise _misshapen("tokenizer", "inputs", name, tensors[name], "[1, S]")
        if tensors[GRID].ndim != 2:
            raise _misshapen("tokenizer", "inputs", GRID, tensors[GRID], "[N, 2]")
        return tensors

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return its vision's seams; none where the gate is shut. It gets copies, which it may overwrite."""
        with at_stage("vision", "vision"):
            given = self.subject.vision(values.copies(inputs))
        tensors = values.tensors("vision", "vision", given)
        if unknown := [name for name in tensors if name not in VISION_SEAMS]:
            raise SubjectFaultError("vision", f"the subject's vision gave {shown(unknown[0])}; {_valid_seams()}")
        if tensors and "vision_fusion" not in tensors:
            raise SubjectFaultError("vision", "the subject's vision gave no vision_fusion; give what goes into prefill")
        return tensors

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> tuple[DecodeView, Tensor]:
        """Return where decoding then stands, and the logits of the first token ``[V]``, float32.

        They may hold NaN, which the comparison reports. The subject gets copies, which it may overwrite.
        """
        with at_stage("prefill", "prefill"):
            fused = None if vision_fusion is None else vision_fusion.clone()
            state: DecodeView = self.subject.prefill(values.copies(inputs), fused)
            return state, _logits("prefill", "prefill gave a state with", getattr(state, "logits", None))

    def step(self, state: DecodeView, token: int) -> Tensor:
        """Feed one token; returns the next logits ``[V]``, float32, which may hold NaN."""
        with at_stage("decode", "step"):
            return _logits("decode", "step gave", self.subject.step(state, token))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        with at_stage("postprocess", "text_of"):
            text = self.subject.text_of(list(token_ids))
        return values.text("postprocess", "text_of", text)

    def write(self, text: str, page: Path, folder: Path) -> None:
        """Write the files that the vendor writes, ``result.mmd`` at least."""
        page, folder = page.absolute(), folder.absolute()
        with at_stage("postprocess", "write"):
            self.subject.write(text, page, folder)
        if not (folder / MMD).is_file():
            raise SubjectFaultError("postprocess", f"the subject's write left no {MMD} in the folder; write it there")

    def _has(self, stage: str, method: str) -> bool:
        with at_stage(stage, method):
            return callable(getattr(self.subject, method, None))

    def _own(self, stage: str, name: str, default: Any, read: Callable[[Any], T]) -> T:
        """Return what the subject says of itself under ``name``, as ``read`` makes it our own."""
        with at_stage(stage, name):
            return read(getattr(self.subject, name, default))


def _logits(stage: str, given_by: str, given: object) -> Tensor:
    """Return logits of whatever dtype as a float32 tensor of our own ``[V]``; called where a stage is open."""
    if not values.is_tensor(given):
        raise SubjectFaultError(stage, f"the subject's {given_by} {values.kind(given)} for logits; give a tensor [V]")
    own = values.copied(stage, given_by, "logits", given)
    if own.ndim == 0 or own.numel() != own.shape[-1]:
        raise SubjectFaultError(stage, f"the subject's {given_by} logits of shape {list(own.shape)}; give [V]")
    return own.float().flatten()


def _misshapen(stage: str, method: str, name: str, given: Tensor, shape: str) -> SubjectFaultError:
    return SubjectFaultError(stage, f"the subject's {method} gave {name} of shape {list(given.shape)}; give {shape}")


def _valid_seams() -> str:
    return f"the seams are {', '.join(VISION_SEAMS)}"
