"""Fixtures of all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partialmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_dsocr.base.process import end_with_parent
from pytest_dsocr.plugin.options import OPTIONS
from tests.checkout import CHECKOUT
from tests.leaks import OwnModulesSnapshot, changes, lost, state

if TYPE_CHECKING:
    from pytest_dsocr.engine.engine import Engine

with suppress(ImportError):  # where only what needs a GPU is run
    from hypothesis import HealthCheck, settings

    # the same examples each time, so that no commit is red by chance; DSOCR_FUZZ_EXAMPLES asks for many new ones
    settings.register_profile(
        "everywhere",
        deadline=None,
        database=None,
        derandomize="DSOCR_FUZZ_EXAMPLES" not in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("everywhere")

if find_spec("triton") and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read as triton is first imported, which torch does for whatever counts FLOPs


IN_ORDER = "-p no:randomly"


@pytest.fixture(scope="session", autouse=True)
def _modules_stay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep modules that tests import, and run Hypothesis once, which saves repeated garbage collection."""
    if "hypothesis" in sys.modules:
        from hypothesis import given, strategies

        given(strategies.none())(lambda _: None)()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnModulesSnapshot, "folder", str(tmp_path_factory.getbasetemp()), raising=False)
        patch.setattr("_pytest.pytester.SysModulesSnapshot", OwnModulesSnapshot)
        yield


@pytest.fixture(autouse=True)
def _leaves_nothing(_modules_stay: None) -> Iterator[None]:
    """Fail a test that leaves its process changed, instead of later tests."""
    modules, before = dict(sys.modules), state()
    yield
    left = [*changes(before, state())]
    if gone := lost(modules):
        left.append(f"{len(gone)} modules taken out of sys.modules, or imported anew: {', '.join(gone[:5])}")
    if left:
        pytest.fail("the test leaves its process changed; put back what it changed:\n" + "\n".join(left), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _processes_of_a_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let processes that a test starts import these tests, and end them with this run."""
    folder = tmp_path_factory.mktemp("path")
    for name in ("suites", "tests"):
        (folder / name).symlink_to(CHECKOUT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            subprocess.Popen, "__init__", partialmethod(subprocess.Popen.__init__, preexec_fn=end_with_parent)
        )
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))
        patch.setenv("PYTEST_ADDOPTS", IN_ORDER)
        patch.setenv("DSOCR_EXPLAIN", "0")  # but where a test is about it
        patch.setenv("DSOCR_KEPT_ANSWERS", "off")
        for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as by nohup; a process inherits it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a pytester with tests in the order of their files."""
    monkeypatch.setenv("PYTEST_ADDOPTS", IN_ORDER)
    return pytester


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all options from the environment, turn explanations off, and keep no answers."""
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)
    monkeypatch.setenv("DSOCR_EXPLAIN", "0")
    monkeypatch.setenv("DSOCR_KEPT_ANSWERS", "off")


@pytest.fixture(scope="session")
def tiny() -> Engine[Any]:
    """Return an engine with the smallest synthetic checkpoint."""
    from pytest_dsocr.engine.engine import Engine  # here, because a process that spreads the tests needs no torch

    return Engine.from_checkpoint("synthetic:tiny")
