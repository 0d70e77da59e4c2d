"""The worker answers as the runtime does in this process; and what becomes of one that fails: no verdict, no hang."""

import gc
import hashlib
import logging
import os
import re
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.block_seams import in_stage_order
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.packing import pack
from pytest_dsocr.reference.environment import interpreter
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError, pack_case, unpack_case
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.run.references import reference_of
from tests.compare.made import every_bit
from tests.crops import cropped_case
from tests.processes import await_ended
from tests.recordings import FILES
from tests.reference.conftest import STAND_IN, Home, copy_stand_in, worker_folders
from tests.reference.misbehaving import RUNTIME, SIGNS, SLOW_S
from tests.report.made import config

CHECKPOINT = "synthetic:tiny"
Sign = tuple[str, int, int | None]


@dataclass
class Live:
    """A reference and the progress that it has reported."""

    reference: LiveReference
    loading: list[Sign]
    progress: list[Sign]


@pytest.fixture(scope="module")
def live(home: Home) -> Iterator[Live]:
    seen: list[Sign] = []
    how: dict[str, Any] = {"command": "the command", "on_progress": lambda *sign: seen.append(sign)}
    with LiveReference(home.folder, CHECKPOINT, python=home.python, **how) as reference:
        reference.start()
        yield Live(reference, seen.copy(), seen)


@pytest.fixture(scope="module")
def runtime() -> Iterator[VendorRuntime]:
    """Return the stand-in in this process."""
    yield VendorRuntime.load(STAND_IN, CHECKPOINT)
    logging.disable(logging.NOTSET)  # which the runtime, at home in a process of its own, sets higher


@pytest.mark.parametrize("home", ["stand_in"], indirect=True)
def test_answers_are_the_runtimes(live: Live, runtime: VendorRuntime, case: Case) -> None:
    """The seams of blocks come without their values, which are too much to send."""
    for each in (case, cropped_case(case.page.parent, "free", 2)):
        observed = live.reference.observe(each)
        assert every_bit(pack(observed)) == every_bit(pack(runtime.observe(each, keep_values=True)))
        assert {"/" in name: seam.values is None for name, seam in observed.seams.items()} == {True: True, False: False}
        assert list(observed.seams) == list(in_stage_order(observed.seams))
        assert live.reference.flops(each) == runtime.flops(each)


def test_progress_and_how_an_answer_was_made_are_reported(
    live: Live, home: Home, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [(done, total) for what, done, total in live.loading if what == "weights"]
    assert len(weights) > 10
    assert weights[-1][0] == weights[-1][1]
    live.progress.clear()
    monkeypatch.setattr(live.reference, "keep_values", False)
    seen = live.reference.observe(case)
    assert [sign for sign in live.progress if sign[0] == "token"] == [("token", n, 4) for n in (1, 2, 3, 4)]
    assert {"sam", "clip", "projector"} <= {what for what, *_ in live.progress}

    made = live.reference.provenance
    assert made.vendor_sha256 == {name: hashlib.sha256((home.folder / name).read_bytes()).hexdigest() for name in FILES}
    assert (made.checkpoint, made.device, made.dtype, made.attention) == (CHECKPOINT, "cpu", "float32", "eager")
    assert made.command == "the command"
    assert seen.provenance == made.with_ceiling(4, DEEPSEEK_OCR) != made
    assert seen.inputs.values is None
    assert all(seam.values is None and len(seam.sketch) for seam in seen.seams.values())


@pytest.mark.dsocr_slow
def test_a_run_with_a_folder_for_results_keeps_the_files_of_each_case(case: Case, tmp_path: Path) -> None:
    sides = {"reference": STAND_IN, "checkpoint": CHECKPOINT, "vendor_env": Path(sys.prefix)}
    reference = reference_of(config(**sides, out=tmp_path))
    assert isinstance(reference, LiveReference)
    with reference:
        output = reference.observe(case).output
        assert output.kept
        files = {path.relative_to(output.kept).as_posix(): path.stat().st_size for path in output.kept.rglob("*.*")}
        assert {"result.mmd", "result_with_boxes.jpg"} <= files.keys()
        assert files == {name: artefact.bytes for name, artefact in output.artefacts.items()}
    kept = output.kept
    del reference
    gc.collect()
    assert not kept.parent.exists(), "what nobody took goes with the reference"


def test_a_case_travels_whole(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.page.parent)
    relative = Case(Path(case.page.name), case.prompt, case.preset, 7, DEEPSEEK_OCR)
    assert relative.page_sha256  # which is kept beside the fields
    assert unpack_case(pack_case(relative)) == Case(case.page, case.prompt, case.preset, 7, DEEPSEEK_OCR)


# A worker that fails. ``tests/subjects/test_isolation.py`` has more ways to end, of the same kind of process.


def asked(deed: str) -> Case:
    """Return a case for which a misbehaving worker does ``deed``."""
    return Case(Path("page.png"), deed, DEEPSEEK_OCR.presets["tiny"], 8192, DEEPSEEK_OCR)


def misbehaving(checkpoint: str = "nothing", **how: Any) -> LiveReference:
    return LiveReference(None, checkpoint, python=Path(sys.executable), runtime=RUNTIME, **how)


def message_of(request: Callable[[], object]) -> str:
    with pytest.raises(ReferenceFaultError) as caught:
        request()
    return str(caught.value)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("deed", "facts", "limit_s"),
    [("kill", "was killed by SIGKILL.*memory", 600), ("deaf", "no progress for 0.2 s", 0.2)],
)
def test_a_worker_that_is_lost_is_replaced_once(deed: str, facts: str, limit_s: float, temporary: Path) -> None:
    """The limit of an answer does not include the start, which imports torch and takes longer."""
    before = worker_folders(temporary)
    with misbehaving(time_limit_s=limit_s) as reference:
        said = message_of(lambda: reference.flops(asked(deed)))
        assert re.match(
            r"the engine's worker could not answer flops\(page-tiny-\S+\): it .*, and its replacement", said
        )
        assert len(re.findall(facts.partition(".*")[0], said)) == 2
        assert re.search(facts, said)
        assert reference.worker_pid is None
    gc.collect()
    assert worker_folders(temporary) <= before


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("deed", "facts"), [("exit 3", "status 3, and its replacement"), ("memory", "MemoryError: tried")]
)
def test_a_worker_that_cannot_load_is_not_tried_again(deed: str, facts: str) -> None:
    with misbehaving(deed) as reference:
        first = message_of(reference.start)
        assert f"load({deed}): loading {deed}, it " in first
        assert facts in first
        reference._python = Path("/nowhere")  # so that it cannot be tried
        assert facts in message_of(lambda: reference.flops(asked("nothing")))


def test_one_that_does_not_start_in_time_is_reported_with_the_limit_to_raise() -> None:
    with misbehaving("deaf", start_limit_s=0.2) as reference:
        assert "made no progress for 0.2 s and was ended; raise the start limit if" in message_of(reference.start)


@pytest.mark.dsocr_slow
def test_an_exception_is_answered_and_its_worker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replacement of a lost worker has the same environment."""
    caplog.set_level("WARNING")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with misbehaving() as reference:
        reference.start()
        pid = reference.worker_pid
        for deed, facts in {
            "memory": "MemoryError: tried to allocate 20.00 GiB; use a smaller preset or checkpoint",
            "cuda memory": "OutOfMemoryError: tried to allocate 20.00 GiB; use a smaller preset or",
            "system exit": "SystemExit: 3; see its traceback for the cause\n",
            "import error": "ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
        }.items():
            said = message_of(lambda deed=deed: reference.flops(asked(deed)))  # type: ignore[misc]
            assert facts in said
            assert "misdeeds.py" in said
        assert reference.worker_pid == pid
        environment: Mapping[str, object] = reference.flops(asked(f"exit 3@{tmp_path}/once"))
        assert reference.worker_pid not in (None, pid)
        assert environment["CUDA_VISIBLE_DEVICES"] == "3"
        assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
        reference.flops(asked("complain"))
        assert all(line.isprintable() for line in message_of(lambda: reference.flops(asked("exit 3"))).splitlines())
        assert "gave an invalid answer" in message_of(lambda: reference.flops(asked("no mapping")))
    assert "it ended with status 3; see its output" in caplog.messages[0]


@pytest.mark.dsocr_slow
def test_signs_of_progress_put_the_limit_off_and_an_interrupt_ends_the_worker() -> None:
    seen: list[Sign] = []
    with misbehaving(on_progress=lambda *sign: seen.append(sign)) as reference:
        reference.start()
        reference.time_limit_s = SLOW_S / 2
        pid = reference.worker_pid
        assert reference.flops(asked("slow"))
        assert reference.worker_pid == pid
        assert seen == [("token", n, None) for n in range(SIGNS)]

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        reference._on_progress = interrupt
        with pytest.raises(KeyboardInterrupt):
            reference.flops(asked("slow"))
        assert pid
        await_ended(pid)
        assert reference.flops(asked("nothing"))
        pid = reference.worker_pid
    del reference  # forgotten, it ends its worker
    gc.collect()
    assert pid
    await_ended(pid)


def test_what_cannot_be_loaded_is_said(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor's worker does not import from the caller's path or folder."""
    venv.create(tmp_path / "bare")
    (tmp_path / "numpy.py").write_text("raise SystemExit('the worker imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    bare = interpreter(tmp_path / "bare")
    [packages] = (tmp_path / "bare").glob("lib/python*/site-packages")
    least = Path(msgspec.__file__).parent
    later = copy_stand_in(tmp_path)
    with (later / "conversation.py").open("a") as file:
        file.write("\nimport transformers\nraise SystemExit\n")
    (packages / "transformers-5.23.0.dist-info").mkdir()
    metadata = packages / "transformers-5.23.0.dist-info" / "METADATA"
    for vendor, python, message in (
        (STAND_IN, bare, "ModuleNotFoundError: .*`dsocr vendor setup "),
        (tmp_path, bare, f"it refused: {tmp_path} lacks a file with the model.s class .modeling_deepseekocr.py, "),
        (STAND_IN, tmp_path / "no", rf"it could not be started as {tmp_path}/no \(No such file or directory\)"),
        (later, bare, "it refused: .* needs transformers 4.46, and the worker's environment has 5.23"),
    ):
        if vendor == later:
            metadata.write_text("Name: transformers\nVersion: 5.23.0\n")
        elif vendor == tmp_path:  # what it takes to read the vendor's folder, and no more
            (packages / least.name).symlink_to(least)
        with LiveReference(vendor, CHECKPOINT, python=python) as reference:
            said = message_of(lambda: reference.observe(case))
        assert re.search(f"observe\\(square-tiny-markdown\\): loading {CHECKPOINT}, .*{message}", said), said
