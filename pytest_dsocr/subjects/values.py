"""What a subject hands over, made our own at once: copies, in exact types, which its next call cannot change.

A subject may give the same buffers again (CUDA graphs do), tensors of a class of its own, or texts that compare as they
like; what is kept of it is none of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypeGuard

from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.foundation.words import exact, exact_tensor, is_text, shown
from pytest_dsocr.observation.config import SubjectFaultError
from pytest_dsocr.subjects.calls import at_stage


def text(stage: str, method: str, given: object) -> str:
    """Return the text that ``method`` returned."""
    if not is_text(given):
        raise SubjectFaultError(stage, f"the subject's {method} gave {kind(given)}; give the text, a str")
    made: str = exact(given)
    return made


def texts(stage: str, method: str, given: object, number: int) -> list[str]:
    """Return the texts that ``method`` returned; there must be ``number`` of them."""
    if not isinstance(given, Sequence) or is_text(given):
        raise SubjectFaultError(stage, f"the subject's {method} gave {kind(given)}; give a list of texts, one a page")
    with at_stage(stage, method):
        own = list(given)
    if len(own) != number:
        raise SubjectFaultError(
            stage, f"the subject's {method} gave {len(own)} texts of {number} pages; give one a page"
        )
    return [text(stage, method, one) for one in own]


def tensors(stage: str, method: str, given: object) -> dict[str, Tensor]:
    """Return copies of the tensors that ``method`` returned, by their names."""
    if not isinstance(given, Mapping):
        raise SubjectFaultError(stage, f"the subject's {method} gave {kind(given)}; give a mapping of names to tensors")
    with at_stage(stage, method):  # an error on a GPU is heard of where its values are waited for
        pairs = list(given.items())
        if others := [name for name, _ in pairs if not is_text(name)]:
            raise SubjectFaultError(stage, f"the subject's {method} gave {kind(others[0])} for a name; give a str")
        return {exact(name): copied(stage, f"{method} gave", name, value) for name, value in pairs}


def copied(stage: str, given_by: str, name: str, given: object) -> Tensor:
    """Return a copy of one tensor, as torch's own class, on its device; called where a stage is open.

    Raises:
        SubjectFaultError: where it is none, or one whose values cannot be read one by one.
    """
    return viewed(stage, given_by, name, given).clone()


def viewed(stage: str, given_by: str, name: str, given: object) -> Tensor:
    """Do what :func:`copied` does, on the subject's own memory."""
    named = exact(shown(name))
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


def policy(given: object) -> DecodePolicy:
    """Return a policy's numbers, as a policy."""
    named = {field.name: getattr(given, field.name) for field in fields(DecodePolicy) if hasattr(given, field.name)}
    return DecodePolicy(**exact(named))


def kind(value: object) -> str:
    """Describe a value by its type, the only part of it that can be trusted."""
    return "None" if value is None else f"a {exact(shown(type(value).__name__))}"
