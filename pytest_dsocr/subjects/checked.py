"""A subject's methods, checked: each returns what the protocol states or raises a :class:`SubjectFaultError`.

What a subject hands over is made our own at once: copies, in exact types, which its next call cannot change. It may
give the same buffers again (CUDA graphs do), tensors of a class of its own, or texts that compare as they like.

Shapes: S prompt tokens, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from torch import Tensor

from pytest_dsocr.base.exact_types import exact_tensor, is_text, to_builtin
from pytest_dsocr.base.words import shown
from pytest_dsocr.contract import GRID, ROWS, TENSORS
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.models import VISION_SEAMS
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import NotOfferedError, SubjectFaultError
from pytest_dsocr.subjects.calls import at_stage, current
from pytest_dsocr.subjects.protocol import DecodeView, Offers, TextSubject, level_of


def own_text(stage: str, method: str, given: object) -> str:
    """Return the text that ``method`` returned."""
    if not is_text(given):
        raise SubjectFaultError(stage, f"the subject's {method} gave {kind(given)}; give the text, a str")
    made: str = to_builtin(given)
    return made


def own_texts(stage: str, method: str, given: object, number: int) -> list[str]:
    """Return the texts that ``method`` returned; there must be ``number`` of them."""
    if not isinstance(given, Sequence) or is_text(given):
        raise SubjectFaultError(stage, f"the subject's {method} gave {kind(given)}; give a list of texts, one a page")
    with at_stage(stage, method):
        own = list(given)
    if len(own) != number:
        raise SubjectFaultError(
            stage, f"the subject's {method} gave {len(own)} texts of {number} pages; give one a page"
        )
    return [own_text(stage, method, one) for one in own]


def own_tensors(stage: str, method: str, given: object) -> dict[str, Tensor]:
    """Return copies of the tensors that ``method`` returned, by their names."""
    if not isinstance(given, Mapping):
        raise SubjectFaultError(stage, f"the subject's {method} gave {kind(given)}; give a mapping of names to tensors")
    with at_stage(stage, method):  # an error on a GPU is heard of where its values are waited for
        pairs = list(given.items())
        if others := [name for name, _ in pairs if not is_text(name)]:
            raise SubjectFaultError(stage, f"the subject's {method} gave {kind(others[0])} for a name; give a str")
        return {to_builtin(name): copied(stage, f"{method} gave", name, value) for name, value in pairs}


def copied(stage: str, given_by: str, name: str, given: object) -> Tensor:
    """Return a copy of one tensor, as torch's own class, on its device; called where a stage is open.

    Raises:
        SubjectFaultError: where it is none, or one whose values cannot be read one by one.
    """
    return viewed(stage, given_by, name, given).clone()


def viewed(stage: str, given_by: str, name: str, given: object) -> Tensor:
    """Do what :func:`copied` does, on the subject's own memory."""
    named = to_builtin(shown(name))
    if not is_tensor(given):
        raise SubjectFaultError(stage, f"the subject's {given_by} {kind(given)} for {named}; give a tensor")
    own = exact_tensor(given)
    if (what := _unreadable(own)) is None:
        return own
    raise SubjectFaultError(stage, f"the subject's {given_by} {what} for {named}; give a tensor that holds its values")


def _unreadable(own: Tensor) -> str | None:
    """Say what a tensor is whose values cannot be read one by one as real numbers; None of one whose values can."""
    if type(own) is not Tensor:
        return kind(own)
    layout = "meta" if own.is_meta else "nested" if own.is_nested else str(own.layout).removeprefix("torch.")
    readable = layout == "strided" and not own.is_complex() and not own.is_quantized
    return None if readable else f"a {layout} tensor of {own.dtype}"


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a tensor, whatever it says of itself in ``__class__``."""
    return issubclass(type(value), Tensor)


def copies(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies for a subject, which it may overwrite."""
    return {name: value.clone() for name, value in given.items()}


def own_policy(given: object) -> DecodePolicy:
    """Return a policy's numbers, as a policy."""
    named = {field.name: getattr(given, field.name) for field in fields(DecodePolicy) if hasattr(given, field.name)}
    return DecodePolicy(**to_builtin(named))


def kind(value: object) -> str:
    """Describe a value by its type, the only part of it that can be trusted."""
    return "None" if value is None else f"a {to_builtin(shown(type(value).__name__))}"


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
        """Policy by which the subject chooses tokens; None for the vendor's."""
        return self._own("decode", "policy", None, lambda given: None if given is None else own_policy(given))

    @property
    def first_token_ms(self) -> float | None:
        """Milliseconds from the request to the first text of the last ``read``, if known."""
        return self._own(
            "read", "first_token_ms", None, lambda given: None if given is None else to_builtin(float(given))
        )

    @property
    def ended_by(self) -> str:
        """Reason for the end of the last ``read``; empty if unknown."""
        return self._own("read", "ended_by", "", lambda given: own_text("read", "ended_by", given))

    @property
    def writes(self) -> bool:
        """Whether the subject writes files."""
        return self._has("postprocess", "write")

    @property
    def reads_many(self) -> bool:
        """Whether the subject reads several pages together."""
        return self._has("read", "read_many")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes that the subject's factory accepts, in addition to the run's."""
        return self._own("load", "dtypes", (), lambda given: to_builtin(tuple(given)))

    @property
    def tells_text(self) -> bool:
        """Whether the subject turns tokens into text; equal tokens then need no second reading."""
        return self._has("postprocess", "text_of")

    @property
    def promised(self) -> frozenset[str]:
        """Seams that the subject must return if the reference has them."""
        declared = self._own("vision", "seams", (), lambda given: frozenset(to_builtin(tuple(given))))
        if unknown := sorted(declared.difference(VISION_SEAMS), key=str):
            raise SubjectFaultError("vision", f"the subject's seams name {shown(unknown[0])}; {_valid_seams()}")
        return (declared | ALWAYS_PROMISED) - self.not_offered

    @property
    def not_offered(self) -> frozenset[str]:
        """Names of the last inputs and results that are not the subject's own work."""
        return self._own("tokenizer", "not_offered", frozenset(), lambda given: frozenset(to_builtin(tuple(given))))

    @property
    def block_outputs(self) -> dict[str, Tensor]:
        """Outputs of blocks that an adapter without modules kept of the last page, by name, such as ``prefill/0``."""
        return self._own("vision", "block_outputs", {}, lambda given: own_tensors("vision", "block_outputs", given))

    def announce(self, case: Case, token_ids: Sequence[int]) -> None:
        """Announce the next case and the tokens of its steps to a subject that has ``announce``."""
        if self._has("tokenizer", "announce"):
            page, how = case.page.absolute(), {"prompt": case.prompt, "preset": case.preset}
            with at_stage("tokenizer", "announce"):
                self.subject.announce(page, **how, max_new_tokens=case.max_new_tokens, token_ids=[*token_ids])

    def read(self, case: Case) -> str:
        """Return what it reads, with its markup, and without the white space around it, as the vendor strips it."""
        self.offers.check(case)
        page = case.page.absolute()  # the subject may have a working directory of its own
        current().read.append(case.id)
        with at_stage("read", "read"):
            text = self.subject.read(page, prompt=case.prompt, preset=case.preset, max_new_tokens=case.max_new_tokens)
        return own_text("read", "read", text).strip()

    def read_many(self, cases: Sequence[Case]) -> list[str]:
        """Return what it reads of several pages together; all but the page is the first case's."""
        pages, asked = [case.page.absolute() for case in cases], cases[0]
        with at_stage("read", "read_many"):
            texts = self.subject.read_many(
                pages, prompt=asked.prompt, preset=asked.preset, max_new_tokens=asked.max_new_tokens
            )
        return [text.strip() for text in own_texts("read", "read_many", texts, len(pages))]

    def inputs(self, case: Case, *, partial: bool = False) -> dict[str, Tensor]:
        """Return what goes into its model, at least the vendor's five tensors; its own, unless ``partial``."""
        self.offers.check(case)
        page = case.page.absolute()
        with at_stage("tokenizer", "inputs"):
            given = self.subject.inputs(page, prompt=case.prompt, preset=case.preset)
        tensors = own_tensors("tokenizer", "inputs", given)
        if (lent := sorted(self.not_offered.intersection(TENSORS))) and not partial:
            raise NotOfferedError(f"not offered: {', '.join(lent)} of the inputs")
        if absent := [name for name in TENSORS if name not in tensors]:
            raise SubjectFaultError("tokenizer", f"the subject's inputs lack {', '.join(absent)}; give these as well")
        for name in ROWS:
            if tensors[name].ndim != 2 or len(tensors[name]) != 1:
                raise _misshapen("tokenizer", "inputs", name, tensors[name], "[1, S]")
        if tensors[GRID].ndim != 2:
            raise _misshapen("tokenizer", "inputs", GRID, tensors[GRID], "[N, 2]")
        return tensors

    def vision(self, inputs: Mapping[str, Tensor], *, partial: bool = False) -> dict[str, Tensor]:
        """Return its vision's seams, the last of them too, unless ``partial``; none where the gate is shut.

        It gets copies, which it may overwrite.
        """
        with at_stage("vision", "vision"):
            given = self.subject.vision(copies(inputs))
        tensors = own_tensors("vision", "vision", given)
        if unknown := [name for name in tensors if name not in VISION_SEAMS]:
            raise SubjectFaultError("vision", f"the subject's vision gave {shown(unknown[0])}; {_valid_seams()}")
        if FUSION not in tensors and FUSION in self.not_offered and not partial:
            raise NotOfferedError(f"not offered: {FUSION}")
        if tensors and FUSION not in {*tensors, *self.not_offered}:
            raise SubjectFaultError("vision", f"the subject's vision gave no {FUSION}; give what goes into prefill")
        return tensors

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> tuple[DecodeView, Tensor]:
        """Return where decoding then stands, and the logits of the first token ``[V]``, float32.

        They may hold NaN, which the comparison reports. The subject gets copies, which it may overwrite.
        """
        with at_stage("prefill", "prefill"):
            fused = None if vision_fusion is None else vision_fusion.clone()
            state: DecodeView = self.subject.prefill(copies(inputs), fused)
            return state, _logits("prefill", "prefill gave a state with", getattr(state, "logits", None))

    def step(self, state: DecodeView, token: int) -> Tensor:
        """Feed one token; returns the next logits ``[V]``, float32, which may hold NaN."""
        with at_stage("decode", "step"):
            return _logits("decode", "step gave", self.subject.step(state, token))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        with at_stage("postprocess", "text_of"):
            text = self.subject.text_of(list(token_ids))
        return own_text("postprocess", "text_of", text)

    def write(self, text: str, page: Path, folder: Path, file: str) -> None:
        """Write the files that the vendor writes, ``file`` at least."""
        page, folder = page.absolute(), folder.absolute()
        with at_stage("postprocess", "write"):
            self.subject.write(text, page, folder)
        if not (folder / file).is_file():
            raise SubjectFaultError("postprocess", f"the subject's write left no {file} in the folder; write it there")

    def _has(self, stage: str, method: str) -> bool:
        with at_stage(stage, method):
            return callable(getattr(self.subject, method, None))

    def _own(self, stage: str, name: str, default: Any, read: Callable[[Any], T]) -> T:
        """Return what the subject says of itself under ``name``, as ``read`` makes it our own."""
        with at_stage(stage, name):
            return read(getattr(self.subject, name, default))


def _logits(stage: str, given_by: str, given: object) -> Tensor:
    """Return logits of whatever dtype as a float32 tensor of our own ``[V]``; called where a stage is open."""
    if not is_tensor(given):
        raise SubjectFaultError(stage, f"the subject's {given_by} {kind(given)} for logits; give a tensor [V]")
    own = copied(stage, given_by, "logits", given)
    if own.ndim == 0 or own.numel() != own.shape[-1]:
        raise SubjectFaultError(stage, f"the subject's {given_by} logits of shape {list(own.shape)}; give [V]")
    return own.float().flatten()


def _misshapen(stage: str, method: str, name: str, given: Tensor, shape: str) -> SubjectFaultError:
    return SubjectFaultError(stage, f"the subject's {method} gave {name} of shape {list(given.shape)}; give {shape}")


def _valid_seams() -> str:
    return f"the seams are {', '.join(VISION_SEAMS)}"
