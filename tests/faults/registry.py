"""Known mistakes, each planted from outside in the engine or the contract: what it is, and how it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import pytest
from torch import nn

from pytest_dsocr.engine.model import Core, DeepseekOCR
from pytest_dsocr.subjects.session import SessionSubject

Plant = Callable[[pytest.MonkeyPatch, SessionSubject], None]
"""Puts the mistake into the code and a loaded subject; undoing the patch takes it out again."""

ANY, CROPS, NO_CROPS, COLOUR = "any page", "a page with crops", "a page without crops", "a page in colour"
LONG, REPEATS, FIGURES = "a page of many tokens", "a page that repeats itself", "a page with figures"


@dataclass(frozen=True)
class Fault:
    """One mistake."""

    id: str
    """Of the project's list of mistakes of real ports where it is there, else one of its own."""
    title: str
    stage: str
    """Where it first shows; see :func:`tests.faults.outcome.stage_of`."""
    symptom: str
    """What a user sees."""
    page: str
    """The class of page that shows it."""
    told: str
    """A regular expression that a hint fits which names this mistake."""
    equivalent: str
    """Why no page can show it, where that is so."""
    gap: str
    """What a default run would need to show it, where it has not got that."""
    plant: Plant

    @property
    def unseen(self) -> str:
        """Why a default run passes it: no page can show it, or what would show it is not there; else empty."""
        return self.equivalent or self.gap

    @property
    def cause(self) -> str:
        """What somebody did, in words."""
        return " ".join((getdoc(self.plant) or "").split())


FAULTS: dict[str, Fault] = {}
"""Every mistake by its id, in the order of the stages once :mod:`tests.faults.all` is imported."""


def fault(
    name: str, title: str, stage: str, symptom: str, told: str, page: str = ANY, equivalent: str = "", gap: str = ""
) -> Callable[[Plant], Plant]:
    """Register the function below as a mistake; its docstring is the cause."""

    def register(plant: Plant) -> Plant:
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, title, stage, symptom, page, told, equivalent, gap, plant)
        return plant

    return register


JUDGED_BY_A_PERSON = "(?!)"


def half(listed: dict[str, Fault]) -> Callable[..., Callable[[Plant], Plant]]:
    """Give what registers a mistake of a held-out set in ``listed``; what is said of it is judged by a person."""

    def mistake(name: str, title: str, stage: str, page: str = ANY) -> Callable[[Plant], Plant]:
        def register(plant: Plant) -> Plant:
            assert name not in listed, name
            listed[name] = Fault(name, title, stage, "", page, JUDGED_BY_A_PERSON, "", "", plant)
            return plant

        return register

    return mistake


def model_of(subject: SessionSubject) -> DeepseekOCR:
    """Give the engine's model behind a subject."""
    model = subject.session.model
    assert isinstance(model, DeepseekOCR)
    return model


def core_of(subject: SessionSubject) -> Core:
    """Give everything of the model but its head."""
    return model_of(subject).model


def run_instead(patch: pytest.MonkeyPatch, module: nn.Module, forward: Callable[..., Any]) -> None:
    """Have one module run another function. An attribute that is set would stay, before pytest 9.2."""
    patch.setitem(vars(module), "forward", forward)
