"""What a subject changes around itself is noticed, told once, its own while it runs, and nobody else's."""

from __future__ import annotations

import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.subjects.calls import Watch, at_stage, watching
from tests.plugin.misdeeds import DEEDS

READINGS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "chdir": ("the working directory", Path.cwd),
    "path": ("sys.path", lambda: [*sys.path]),
    "environment": ("the environment", lambda: {**os.environ}),
    "dtype": ("torch's default dtype", torch.get_default_dtype),
    "device": ("torch's default device", lambda: torch.empty(0).device),
    "grad": ("torch's grad mode", torch.is_grad_enabled),
    "precision": ("torch's precision of float32 products", torch.get_float32_matmul_precision),
    "deterministic": ("torch's choice of deterministic algorithms", torch.are_deterministic_algorithms_enabled),
    "threads": ("torch's number of threads", torch.get_num_threads),
}
"""What a deed changes, as it is told and as it is read."""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.delenv("NEW_VARIABLE", raising=False)
    with watching([]) as watch:
        yield watch


@pytest.mark.parametrize("deed", READINGS)
def test_it_is_its_own_while_it_runs_and_nobody_elses(watch: Watch, deed: str) -> None:
    name, read = READINGS[deed]
    ours = read()
    with at_stage("vision", "vision"):
        DEEDS[deed]()
        expected = read()
    assert expected != ours
    assert read() == ours
    for _ in range(2):
        with at_stage("prefill", "prefill"):
            assert read() == expected
        assert read() == ours
    [note] = [note for note in watch.notes if note.startswith(f"the subject's vision changed {name} ")]
    assert note.endswith("; the run keeps its own")


@pytest.mark.parametrize("deed", READINGS)
def test_it_is_put_back_where_the_call_fails(watch: Watch, deed: str) -> None:
    _, read = READINGS[deed]
    ours = read()

    def broken() -> None:
        DEEDS[deed]()
        raise RuntimeError

    with pytest.raises(SubjectFaultError), at_stage("vision", "vision"):
        broken()
    assert read() == ours


@pytest.mark.parametrize("deed", ["chdir", "dtype", "device", "grad", "path"])
def test_a_step_is_looked_at_as_well(watch: Watch, deed: str) -> None:
    _, read = READINGS[deed]
    ours = read()
    with at_stage("decode", "step"):
        DEEDS[deed]()
    assert read() == ours
    assert len(watch.notes) == 1


@pytest.mark.parametrize(
    ("deed", "told"),
    [("seed", "torch's seed from "), ("random", "the random numbers of Python (seeded, or drawn from)")],
)
def test_seeds_are_told_and_left(watch: Watch, deed: str, told: str) -> None:
    state, seeded = random.getstate(), torch.get_rng_state()
    try:
        for _ in range(2):
            with at_stage("vision", "vision"):
                DEEDS[deed]()
        assert (random.getstate() == state, torch.equal(torch.get_rng_state(), seeded)) != (True, True)
        [note] = watch.notes
        assert note.startswith(f"the subject's vision changed {told}")
        assert note.endswith("; it is left so")
    finally:
        random.setstate(state)
        torch.set_rng_state(seeded)


def test_a_thread_that_the_process_will_wait_for_is_told(watch: Watch) -> None:
    release = threading.Event()
    with at_stage("vision", "vision"):
        thread = threading.Thread(target=release.wait, name="leaked")
        thread.start()
    release.set()
    thread.join()
    limits = re.compile(r", 'pytest_timeout [^']*'")  # a thread that waits beside this test
    assert [limits.sub("", note).replace("('MainThread')", "('MainThread',)") for note in watch.notes] == [
        "the subject's vision changed the threads that a process waits for at its end from ('MainThread',) "
        "to ('MainThread', 'leaked'); it is left so"
    ]


def test_what_we_change_meanwhile_the_subject_finds(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_stage("vision", "vision"):
        DEEDS["path"]()
        DEEDS["environment"]()
    monkeypatch.setenv("OURS", "2")
    monkeypatch.syspath_prepend("/ours")
    with at_stage("vision", "vision"):
        assert (os.environ["OURS"], os.environ["NEW_VARIABLE"]) == ("2", "1")
        assert sys.path[0] == "/nowhere"
        assert "/ours" in sys.path
    assert "NEW_VARIABLE" not in os.environ
    assert sys.path[0] == "/ours"


def test_a_folder_that_it_deletes_is_no_harm(watch: Watch, tmp_path: Path) -> None:
    ours, expected = Path.cwd(), tmp_path / "expected"
    expected.mkdir()
    with at_stage("vision", "vision"):
        os.chdir(expected)
        expected.rmdir()
    assert Path.cwd() == ours
    with at_stage("vision", "vision"):
        pass
    assert Path.cwd() == ours


def test_one_that_changes_nothing_leaves_no_note(watch: Watch) -> None:
    with torch.no_grad(), at_stage("vision", "vision"):
        torch.ones(2) @ torch.ones(2)
    assert watch.notes == []
