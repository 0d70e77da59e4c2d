"""How a mistake of the exam is written down, and the places of a session that several of them change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import pytest
from torch import nn

from pytest_dsocr.engine.model import Core
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.subjects.session import SessionSubject
from tests.conftest import model_of

Plant = Callable[[pytest.MonkeyPatch, SessionSubject], None]
"""Puts the mistake into the code and a loaded subject; undoing the patch takes it out again."""
ANY, CROPS, FIGURES = "any page", "a page with crops", "a page with figures"
TALL = "a page that is no square"


@dataclass(frozen=True)
class Planted:
    """One mistake, and where it first shows; see :func:`tests.faults.outcome.stage_of`."""

    id: str
    title: str
    stage: str
    page: str
    plant: Plant

    def put(self, subject: SessionSubject, changes: Changes) -> None:
        """Plant it until the changes are undone."""
        self.plant(changes.enter_context(pytest.MonkeyPatch.context()), subject)

    @property
    def cause(self) -> str:
        """What somebody did, in words."""
        return " ".join((getdoc(self.plant) or "").split())


def mistake(name: str, title: str, stage: str, page: str = ANY) -> Callable[[Plant], Planted]:
    """Make a mistake of the function below, whose docstring is the cause."""
    return lambda plant: Planted(name, title, stage, page, plant)


def core_of(subject: SessionSubject) -> Core:
    """Return everything of the model but its head."""
    return model_of(subject.session).model


def run_instead(patch: pytest.MonkeyPatch, module: nn.Module, forward: Callable[..., Any]) -> None:
    """Have one module run another function. An attribute that is set would stay, before pytest 9.2."""
    patch.setitem(vars(module), "forward", forward)


def instead(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Any) -> None:
    """Have another function run in place of ``owner.name``, which it is given first."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: change(right, *args, **options))
