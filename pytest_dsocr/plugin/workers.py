"""How pytest-xdist spreads tests: those of a case on one worker, on a GPU of its own; and workers that died."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.process import cores
from pytest_dsocr.observation.config import Config
from pytest_dsocr.observation.level import Level
from pytest_dsocr.report.collection import DIED
from pytest_dsocr.subjects.loading import level_before_loading

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import TestPayload


CASE = re.compile(
    rf"\[(?P<case>.+-(?:{'|'.join(DEFAULT.presets)})-(?:{'|'.join(DEFAULT.prompts)}|prompt_[0-9a-f]{{8}}))[-\]]"
)
"""Finds the id of a case in a test's: ``form-gundam-markdown`` in ``test_x[form-gundam-markdown-2]``."""
SPREAD = "--numprocesses=auto"
"""What ``dsocr compare`` adds where the user says nothing to pytest; in this very form, which marks it as ours."""
WORKERS = 2
"""Beside one, two save a third of the time of a subject with stages; each costs a start and the memory of a model."""


def workers_for(config: Config) -> int:
    """Give how many processes a run is spread over.

    None beside pytest's own where the subject reads and no more, which takes no longer than another process's start,
    and where the model is large or has a GPU.
    """
    offered = level_before_loading(config.subject, may_import=not config.isolate)
    is_small = config.checkpoint == "mini" and config.device == "cpu"
    return WORKERS if is_small and offered is not Level.TEXT and cores() >= WORKERS else 0


def on_own_gpu(config: Config, worker: str) -> Config:
    """Give a worker's config: of ``cuda`` one GPU for each worker in turn, of those that the caller made visible.

    Args:
        config: as the options say.
        worker: its name, such as ``gw1``; empty where there are none.
    """
    if config.device != "cuda" or not worker:
        return config
    import torch

    gpu = f"cuda:{int(worker.removeprefix('gw')) % torch.cuda.device_count()}"
    reference = gpu if config.reference_device == "cuda" else config.reference_device
    return replace(config, device=gpu, reference_device=reference)


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give what distributes the tests under ``--dist load``, which is what ``-n`` means.

    Args:
        config: of the run.
        log: as the hook of pytest-xdist has it.

    Returns:
        A scheduler of pytest-xdist; None where the user has chosen another distribution.
    """
    return CaseScheduling(config, log) if config.getoption("dist") == "load" else None


class CaseScheduling:
    """Waits for the first collection; goes by case where there are any in it, and else as ``load`` does."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        from xdist.scheduler import LoadScheduling

        self._config, self._log, self._waits = config, log, True
        self._chosen = LoadScheduling(config, log)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take what a worker has collected."""
        if self._waits and any(map(CASE.search, collection)):
            self._chosen = self._by_case()
        self._waits = False
        self._chosen.add_node_collection(node, collection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)

    def _by_case(self) -> Any:
        from pytest_dsocr.plugin.case_scheduling import CaseScopeScheduling

        scheduler = CaseScopeScheduling(self._config, self._log)
        for node in self._chosen.nodes:
            scheduler.add_node(node)
        return scheduler


def case_of(test: str) -> str | None:
    """Give the id of the case that a test is of, read off the test's own; None where it is of none."""
    found = CASE.search(test)
    return found["case"] if found else None


def scope_of(test: str) -> str:
    """Give what the tests of one case have in common; a test that is of no case stands by itself."""
    return case_of(test) or test


KILLED = (
    "its worker process died while this test ran (a crash, too little memory, or an exit of the subject's own); "
    "the case is not tried again; --dsocr-isolate gives the subject a process of its own"
)


def lost(crashitem: str, report: pytest.TestReport) -> None:
    """Make pytest-xdist's report of the test whose worker died an error of its case, where it is of one."""
    if case := case_of(crashitem):
        report.longrepr = f"{report.longrepr}: {KILLED}"
        _attach(report, case, KILLED)


def given_up(scheduler: Any, crashitem: str) -> Iterator[pytest.TestReport]:
    """Yield a report of each test that a scheduler of ours gave up with the one whose worker died."""
    take = getattr(scheduler, "take_given_up", list)
    for test in take():
        path = test.partition("::")[0]
        why = f"not run, for its case killed a worker in {crashitem}"
        report = pytest.TestReport(test, (path, None, path), {}, "failed", why, DIED)  # type: ignore[arg-type]
        _attach(report, case_of(test), KILLED)
        yield report


def _attach(report: pytest.TestReport, case: str | None, why: str) -> None:
    payload: TestPayload = {
        "comparisons": [],
        "fault": {"case": case, "stage": None, "why": why, "infrastructure": False},
        "promised": True,
    }
    vars(report)["dsocr"] = payload
