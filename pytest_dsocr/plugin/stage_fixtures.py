"""Fixtures of single stages: the subject's outputs, as far as its level offers them.

pytest loads this in every run, so fixtures import their needs inside. Values are kept until the next case, so a test
must not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin.stash import KeptCase

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.engine.stages import Stages
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.records.subject_result import KvSize
    from pytest_dsocr.subjects.checked import CheckedSubject
    from pytest_dsocr.subjects.kv_probe import KvProbe
    from pytest_dsocr.subjects.protocol import DecodeView


@pytest.fixture
def dsocr_inputs(dsocr_case: Case, dsocr_subject: Any, _dsocr_kept: KeptCase) -> Mapping[str, Tensor]:
    """Return the subject's inputs of the case (L1), named as the fields of ``contract.inputs.Inputs``.

    If both sides have answered to the case already, return the inputs of that answer.
    """
    _needs(dsocr_subject, "L1", "dsocr_inputs")
    make = _checked(dsocr_subject).inputs
    return _dsocr_kept.of_subject("input_tensors", lambda: make(dsocr_case), dsocr_case, dsocr_subject)


@pytest.fixture
def dsocr_vision(
    dsocr_case: Case, dsocr_inputs: Mapping[str, Tensor], dsocr_subject: Any, _dsocr_kept: KeptCase
) -> Mapping[str, Tensor]:
    """Return the subject's seams of vision (L2), including ``vision_fusion``.

    If both sides have answered to the case already, return the seams of that answer.
    """
    _needs(dsocr_subject, "L2", "dsocr_vision")
    make = _checked(dsocr_subject).vision
    return _dsocr_kept.of_subject("vision_tensors", lambda: make(dsocr_inputs), dsocr_case, dsocr_subject)


@pytest.fixture
def dsocr_state(
    dsocr_inputs: Mapping[str, Tensor], dsocr_vision: Mapping[str, Tensor], dsocr_subject: Any
) -> DecodeView:
    """Return the subject's state after the case's prompt, with its cache; a new one for each test (L2)."""
    return _checked(dsocr_subject).prefill(dsocr_inputs, dsocr_vision.get("vision_fusion"))[0]


@pytest.fixture
def dsocr_stage_timer(dsocr_config: Config) -> Stages:
    """Time stages: ``with timer("prefill"): ...``, then ``timer.times()``; with CUDA events on a GPU.

    A subject in a process of its own is timed by the clock, the transfer of tensors included.
    """
    import torch

    from pytest_dsocr.engine.stages import Stages

    return Stages(torch.device("cpu" if dsocr_config.isolate else dsocr_config.device), "timed")


@pytest.fixture
def dsocr_kv() -> Callable[[DecodeView], KvProbe]:
    """Look into a state's key-value cache: ``dsocr_kv(state)``."""
    from pytest_dsocr.subjects.kv_probe import KvProbe

    return KvProbe


@pytest.fixture
def dsocr_kv_size(
    request: pytest.FixtureRequest,
    dsocr_case: Case,
    dsocr_subject: Any,
    dsocr_kv: Callable[[DecodeView], KvProbe],
    _dsocr_kept: KeptCase,
) -> KvSize:
    """Return the size of the key-value cache after the case's prompt: ``layers`` and ``bytes_per_token`` (L2).

    If both sides have answered to the case already, return the size in that answer.
    """
    answer = _dsocr_kept.answer(dsocr_case, dsocr_subject)
    found: KvSize | None = answer and answer.kv
    return found or dsocr_kv(request.getfixturevalue("dsocr_state")).size


def _checked(subject: Any) -> CheckedSubject:
    from pytest_dsocr.subjects.checked import CheckedSubject

    return CheckedSubject(subject)


def _needs(subject: Any, level: str, fixture: str) -> None:
    from pytest_dsocr.plugin.option_values import level as read
    from pytest_dsocr.subjects.protocol import level_of

    if level_of(subject) < (needed := read(level)):
        what = f"a subject of {level} ({needed.meaning})"
        raise DsocrError(f"{fixture} needs {what}; mark the test dsocr_level({level!r})")
