"""The worker answers as the runtime does in this process; and what becomes of one that fails: no verdict, no hang."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.engine.session import Session
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.block_seams import in_stage_order, watch_deep
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.packing import pack, pack_inputs
from pytest_dsocr.reference.environment import FILES, interpreter
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError, pack_case, unpack_case
from pytest_dsocr.reference.vendor_code import observe
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from suites.contract.pages import write_page
from tests.conftest import model_of
from tests.crops import cropped_case
from tests.processes import await_, await_ended
from tests.reference.conftest import STAND_IN, Home, copy_stand_in, worker_folders
from tests.reference.misbehaving import RUNTIME
from tests.reference.replay import same

CHECKPOINT, TOKENS, SEAM_TOLERANCE = "synthetic:tiny", 4, 1e-5
LIMIT_S = 60.0
Sign = tuple[str, int, int | None]


@dataclass
class Live:
    """A reference and what it has told of its progress."""

    reference: LiveReference
    loading: list[Sign]
    progress: list[Sign]


@pytest.fixture(scope="module")
def live(home: Home) -> Iterator[Live]:
    seen: list[Sign] = []
    how: dict[str, Any] = {"command": "the command", "on_progress": lambda *sign: seen.append(sign)}
    with LiveReference(home.folder, CHECKPOINT, python=home.python, time_limit_s=LIMIT_S, **how) as reference:
        reference.start()
        yield Live(reference, seen.copy(), seen)


@pytest.fixture(scope="module")
def runtime() -> Iterator[VendorRuntime]:
    """The stand-in in this process."""
    yield VendorRuntime.load(STAND_IN, CHECKPOINT)
    logging.disable(logging.NOTSET)  # which the runtime, at home in a process of its own, sets higher


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("square", tmp_path_factory.mktemp("pages")), "markdown", "tiny", TOKENS)


@pytest.fixture(scope="module")
def cropped(home: Home, case: Case) -> Case:
    if home.folder == STAND_IN:
        return cropped_case(case.page.parent, "free", 2)
    return make_case(case.page, "free", "gundam", 2)


@pytest.mark.parametrize("home", ["stand_in"], indirect=True)
@pytest.mark.parametrize("name", ["case", "cropped"])
def test_answers_are_the_runtimes(
    live: Live, runtime: VendorRuntime, name: str, request: pytest.FixtureRequest
) -> None:
    case: Case = request.getfixturevalue(name)
    observed = live.reference.observe(case, keep_logits=True)
    same(pack(observed), pack(runtime.observe(case, keep_values=True, keep_logits=True)))
    assert observed.logits is not None
    assert observed.logits.shape == (case.max_new_tokens, 512)
    assert observed.seams["vision_fusion"].values is not None
    same(pack_inputs(live.reference.inputs(case)), pack_inputs(runtime.inputs(case, keep_values=True)))
    assert live.reference.flops(case) == runtime.flops(case)
    times = live.reference.stage_times(case, turns=2)
    assert times.keys() == runtime.stage_times(case, turns=1).keys() >= {"tokenizer", "sam", "prefill", "decode"}
    assert all(len(runs_ms) == 2 and min(runs_ms) > 0 for runs_ms in times.values())


def test_what_is_timed_or_counted_is_not_watched(
    runtime: VendorRuntime, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summing up what every block gives would be part of the stages' times."""
    monkeypatch.delattr(observe, "watch_deep")
    with pytest.raises(NameError):
        runtime.observe(case)
    assert runtime.stage_times(case, turns=1)
    assert runtime.flops(case)
    assert runtime.inputs(case)


def test_answers_are_the_sessions(live: Live, tiny: Session[Any], case: Case, cropped: Case) -> None:
    """With the vendor's own files this is parity; with the stand-in, that nothing is lost on the way."""
    for each in (case, cropped):
        observed = live.reference.observe(each)
        inputs = tiny.prepare(each.page, prompt=each.prompt, preset=each.preset)
        assert observed.token_ids == tiny.run_prepared(inputs, max_new_tokens=each.max_new_tokens).token_ids
        with watch_deep(model_of(tiny).get_submodule) as deep:
            [vision] = tiny.prefill(inputs).visions
        assert observed.seams.keys() == {*vision.seams, *deep.seams, "prefill"}
        assert list(observed.seams) == list(in_stage_order(observed.seams))
        for name, seam in deep.seams.items():
            there = observed.seams[name]
            assert there.values is None, "deep seams in full are too much for the pipe"
            assert compare_seam(name, seam, there, SEAM_TOLERANCE).verdict in (Verdict.MATCH, Verdict.DRIFT), name
        for name, tensor in vision.seams.items():
            values = observed.seams[name].values
            assert values is not None
            assert (values - tensor).norm() < SEAM_TOLERANCE * tensor.norm(), name


def test_progress_and_how_an_answer_was_made_are_told(
    live: Live, home: Home, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [(done, total) for what, done, total in live.loading if what == "weights"]
    assert len(weights) > 10
    assert weights[-1][0] == weights[-1][1]
    live.progress.clear()
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    seen = live.reference.observe(case, out=tmp_path)
    assert [sign for sign in live.progress if sign[0] == "token"] == [("token", n + 1, TOKENS) for n in range(TOKENS)]
    assert {"sam", "clip", "projector"} <= {what for what, *_ in live.progress}

    made, told = live.reference.provenance, seen.provenance
    assert made.vendor_sha256 == {name: hashlib.sha256((home.folder / name).read_bytes()).hexdigest() for name in FILES}
    assert (made.checkpoint, made.device, made.dtype, made.attention) == (CHECKPOINT, "cpu", "float32", "eager")
    assert made.command == "the command"
    assert told is not None
    *others, ceiling = told.overrides
    assert replace(told, overrides=tuple(others)) == made
    assert ceiling == f"generate: max_new_tokens {TOKENS} in place of 8192"

    files = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*.*")}
    assert {"result.mmd", "result_with_boxes.jpg"} <= files.keys() - {"notes.txt"} == seen.output.artefacts.keys()
    assert all(files[name].stat().st_size == artefact.bytes for name, artefact in seen.output.artefacts.items())
    assert files["result.mmd"].read_text(encoding="utf-8") == seen.output.mmd

    monkeypatch.setattr(live.reference, "keep_values", False)
    seen, inputs = live.reference.observe(case), live.reference.inputs(case)
    assert (seen.logits, seen.inputs.values, inputs.values) == (None, None, None)
    assert all(seam.values is None and len(seam.sketch) for seam in seen.seams.values())


def test_a_case_travels_whole(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.page.parent)
    relative = Case(Path(case.page.name), case.prompt, case.preset, 7)
    assert relative.page_sha256  # which is kept beside the fields
    assert unpack_case(pack_case(relative)) == Case(case.page, case.prompt, case.preset, 7)


def test_what_is_sent_of_a_token_does_not_grow_with_the_vocabulary(case: Case) -> None:
    """Its best five, and not its logits, which are half a megabyte."""
    assert SYNTHETIC["small"].decoder.vocab_size == 129_280
    runtime, sent = VendorRuntime.load(STAND_IN, "synthetic:small"), []
    for tokens in (8, 40):
        seen = runtime.observe(replace(case, max_new_tokens=tokens))
        assert len(seen.steps) == tokens
        result, tensors = pack(seen)
        sent.append(len(str(result)) + sum(tensor.nbytes for tensor in tensors.values()))
    assert 40 < (sent[1] - sent[0]) / 32 < 500


# A worker that fails.


@pytest.fixture(autouse=True)
def no_worker_is_left(temporary: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    before = worker_folders(temporary)
    yield
    gc.collect()
    if "live" not in request.fixturenames:
        assert worker_folders(temporary) <= before


def asked(deed: str) -> Case:
    """A case at which a misbehaving worker does a deed."""
    return Case(Path("page.png"), deed, DEFAULT.presets["tiny"])


def misbehaving(python: Path, checkpoint: str = "nothing", limit_s: float = LIMIT_S, **how: Any) -> LiveReference:
    return LiveReference(None, checkpoint, python=python, runtime=RUNTIME, time_limit_s=limit_s, **how)


def message_of(request: Callable[[], object]) -> str:
    with pytest.raises(ReferenceFaultError) as caught:
        request()
    return str(caught.value)


LOST = {
    "exit 3": "ended with status 3",
    "kill": "was killed by SIGKILL",
    "deaf": "gave no sign of life for 2 s and was ended",
}
ADVICE = {
    "kill": "if memory ran out, give it more or a smaller case",
    "deaf": "raise the time limit if it was only slow",
}


@pytest.mark.parametrize("deed", LOST)
def test_a_worker_that_is_lost_twice(deed: str, warm_python: Path) -> None:
    """``tests/subjects/test_isolation.py`` has other ways to end, of the same kind of process."""
    with misbehaving(warm_python) as reference:
        reference.start()
        reference.time_limit_s = 2
        said = message_of(lambda: reference.flops(asked(deed)))
        how, advice = LOST[deed], ADVICE.get(deed, "look for the cause in its output")
        told = rf"the session's worker could not answer flops\(page-tiny-\S+\): it {how}, and the one started in its "
        assert re.match(f"{told}place {how}; {advice}", said), said
        assert reference.worker_pid is None
        assert ("misbehaving.py" in said) is (deed == "deaf"), "where it was"


@pytest.mark.parametrize("deed", ["exit 3", "memory"])
def test_a_worker_that_cannot_load_is_not_tried_again(deed: str, warm_python: Path) -> None:
    with misbehaving(warm_python, deed) as reference:
        for request, name in ((reference.start, "load"), (lambda: reference.flops(asked("nothing")), "flops")):
            said = message_of(request)
            assert said.startswith(f"the session's worker could not answer {name}(")
            assert f": loading {deed}, it " in said
            assert ("ended with status 3, and the one" if deed == "exit 3" else "MemoryError") in said
            assert reference.worker_pid is None


def test_a_second_worker_that_does_better(warm_python: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")  # whatever else in this process has switched warnings off
    with misbehaving(warm_python) as reference:
        reference.start()
        first = reference.worker_pid
        assert reference.flops(asked(f"exit 3@{tmp_path}/once"))
        assert reference.worker_pid not in (None, first)
    [warning] = caplog.messages
    assert ": it ended with status 3; look" in warning
    assert warning.endswith("Another is started in its place.")


RAISED = {
    "memory": "answered MemoryError: tried to allocate 20.00 GiB; give it a smaller preset or checkpoint",
    "cuda memory": "answered OutOfMemoryError: tried to allocate 20.00 GiB; give it a smaller preset or",
    "system exit": "answered SystemExit: 3; look for the cause in its traceback\n",
    "import error": "answered ModuleNotFoundError: No module named 'a_package_that_is_not_there'; see that",
}


def test_an_exception_is_answered_and_its_worker_goes_on(warm_python: Path) -> None:
    with misbehaving(warm_python) as reference:
        reference.start()
        pid = reference.worker_pid
        for deed, told in RAISED.items():
            said = message_of(lambda deed=deed: reference.flops(asked(deed)))  # type: ignore[misc]
            assert f": it {told}" in said
            assert "misdeeds.py" in said
        assert "does not hold together" in message_of(lambda: reference.flops(asked("no mapping")))
        assert reference.flops(asked("babble"))
        assert reference.worker_pid != pid, "one whose answers do not hold together is replaced"
        reference.flops(asked("complain"))
        said = message_of(lambda: reference.flops(asked("exit 3")))
        assert said.isprintable() or all(line.isprintable() for line in said.splitlines())


def test_signs_of_progress_put_the_limit_off(warm_python: Path) -> None:
    seen: list[Sign] = []
    with misbehaving(warm_python, on_progress=lambda *sign: seen.append(sign)) as reference:
        reference.start()
        reference.time_limit_s = 2
        pid = reference.worker_pid
        assert reference.flops(asked("slow"))
        assert reference.worker_pid == pid
    assert seen == [("token", n, None) for n in range(6)]


def test_an_interrupted_request_leaves_no_worker(warm_python: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with misbehaving(warm_python, on_progress=interrupt) as reference:
        reference.start()
        pid = reference.worker_pid
        with pytest.raises(KeyboardInterrupt):
            reference.flops(asked("slow"))
        assert pid
        await_ended(pid)
        assert reference.flops(asked("nothing"))


def test_a_forgotten_reference_ends_its_worker(warm_python: Path) -> None:
    reference = misbehaving(warm_python)
    reference.start()
    pid = reference.worker_pid
    assert pid
    del reference
    gc.collect()
    await_ended(pid)


def test_the_end_of_the_client_ends_the_worker(warm_python: Path, tmp_path: Path) -> None:
    """It is killed in mid-request, at which the worker would not look at its pipe for a long time."""
    program = f"""
from pathlib import Path
from tests.reference.test_live import asked, misbehaving
reference = misbehaving(Path({str(warm_python)!r}))
reference.start()
print(reference.worker_pid, flush=True)
reference.flops(asked('deaf@{tmp_path}/begun'))
"""
    with subprocess.Popen([warm_python, "-c", program], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout
        pid = int(client.stdout.readline())
        await_((tmp_path / "begun").exists)
        client.kill()
    await_ended(pid)


def test_kill_9_in_mid_request(home: Home, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """From outside, at the second token of the first run; the second run is told of nothing."""
    caplog.set_level("WARNING")
    pids: list[int] = []

    def kill(what: str, done: int, total: int | None) -> None:
        if (what, done) == ("token", 2):
            assert reference.worker_pid
            pids.append(reference.worker_pid)
            if len(pids) == 1:
                os.kill(pids[0], signal.SIGKILL)

    with LiveReference(home.folder, CHECKPOINT, python=home.python, on_progress=kill) as reference:
        observed = reference.observe(case)
        same(pack(observed), pack(reference.observe(case)))
        assert len(observed.steps) == TOKENS
        assert len(set(pids)) == 2
        assert pids[1] == pids[2] == reference.worker_pid
    [warning] = caplog.messages
    assert ": it was killed by SIGKILL; if memory ran out" in warning
    await_ended(*pids)


def test_what_a_worker_is_given(warm_python: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """What chooses devices and threads, no network, and a folder for what it writes."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with misbehaving(warm_python) as reference:
        given: Mapping[str, object] = reference.flops(asked("nothing"))
    assert given["CUDA_VISIBLE_DEVICES"] == "3"
    assert given["HF_HUB_OFFLINE"] == given["TRANSFORMERS_OFFLINE"] == "1"
    assert Path(str(given["TMPDIR"])).parent == temporary


def test_what_cannot_be_loaded_is_said(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller has, on its path or in its folder, is not to be found by the vendor's worker."""
    venv.create(tmp_path / "bare")
    (tmp_path / "numpy.py").write_text("raise SystemExit('the worker imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    bare = interpreter(tmp_path / "bare")
    told = {
        (
            STAND_IN,
            bare,
        ): f"ModuleNotFoundError: .*; make its environment with `dsocr vendor setup {STAND_IN}` \\({bare} has",
        (tmp_path, bare): f"it refused: {tmp_path} lacks modeling_deepseekocr.py, modeling_deepseekv2.py, deepencoder",
        (
            STAND_IN,
            tmp_path / "no",
        ): rf"it could not be started as {tmp_path}/no \(No such file or directory\); name the",
    }
    for (vendor, python), message in told.items():
        with LiveReference(vendor, CHECKPOINT, python=python) as reference:
            said = message_of(lambda: reference.observe(case))
        assert re.search(f"observe\\(square-tiny-markdown\\): loading {CHECKPOINT}, .*{message}", said), said


def test_an_environment_of_the_wrong_versions(tmp_path: Path, case: Case) -> None:
    """Told before anything of the vendor's is imported; code that needs no transformers needs none of a version."""
    folder = copy_stand_in(tmp_path)
    path = folder / "conversation.py"
    path.write_text(path.read_text() + "\nimport transformers\nraise SystemExit\n")
    venv.create(tmp_path / "later")
    [packages] = (tmp_path / "later").glob("lib/python*/site-packages")
    (packages / "transformers-5.23.0.dist-info").mkdir()
    (packages / "transformers-5.23.0.dist-info" / "METADATA").write_text("Name: transformers\nVersion: 5.23.0\n")
    with LiveReference(folder, CHECKPOINT, python=interpreter(tmp_path / "later")) as reference:
        message = message_of(lambda: reference.observe(case))
    assert f"it refused: the code in {folder} needs transformers 4.46, and the worker's environment has 5.2" in message
