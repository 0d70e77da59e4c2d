"""The worker answers from another process as the runtime does in this one."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.block_seams import in_stage_order, watch_deep
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.packing import Packed, pack, pack_inputs
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.vendor_code import observe
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.reference.wire import (
    Failure,
    Hello,
    Progress,
    Request,
    Response,
    decode,
    encode,
    pack_case,
    unpack_case,
)
from pytest_dsocr.reference.worker import RuntimeServer
from suites.contract.pages import write_page
from tests.conftest import model_of
from tests.crops import cropped_case
from tests.reference.conftest import STAND_IN, Home, worker_folders

CHECKPOINT = "synthetic:tiny"
TOKENS = 4
Sign = tuple[str, int, int | None]
SEAM_TOLERANCE = 1e-5


@dataclass
class Live:
    """A reference and what it has told of its progress."""

    reference: LiveReference
    loading: list[Sign]
    progress: list[Sign]


@pytest.fixture(scope="module")
def live(home: Home) -> Iterator[Live]:
    seen: list[Sign] = []
    with LiveReference(
        home.folder,
        CHECKPOINT,
        python=home.python,
        time_limit_s=60,
        command="the command",
        on_progress=lambda *sign: seen.append(sign),
    ) as reference:
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


def same(here: Packed, there: Packed) -> None:
    assert json.loads(json.dumps(here[0])) == json.loads(json.dumps(there[0]))
    assert here[1].keys() == there[1].keys()
    for name, tensor in here[1].items():
        assert tensor.dtype == there[1][name].dtype, name
        assert torch.equal(tensor, there[1][name]), name


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


@pytest.mark.parametrize("home", ["stand_in"], indirect=True)
def test_times_have_the_runtimes_shape(live: Live, runtime: VendorRuntime, case: Case) -> None:
    mine, theirs = live.reference.stage_times(case, turns=2), runtime.stage_times(case, turns=2)
    assert mine.keys() == theirs.keys() >= {"tokenizer", "sam", "clip", "projector", "prefill", "decode"}
    assert all(len(runs_ms) == 2 and min(runs_ms) > 0 for runs_ms in mine.values())


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


def test_progress_arrives(live: Live, case: Case) -> None:
    live.progress.clear()
    live.reference.observe(case)
    assert [sign for sign in live.progress if sign[0] == "token"] == [("token", n + 1, TOKENS) for n in range(TOKENS)]
    assert {"sam", "clip", "projector"} <= {what for what, *_ in live.progress}


def test_loading_is_progress(live: Live) -> None:
    weights = [(done, total) for what, done, total in live.loading if what == "weights"]
    assert len(weights) > 10
    assert weights == sorted(weights)
    assert weights[-1][0] == weights[-1][1]


def test_every_answer_says_how_it_was_made(live: Live, home: Home, case: Case) -> None:
    made = live.reference.provenance
    assert made.vendor_sha256 == {name: hashlib.sha256((home.folder / name).read_bytes()).hexdigest() for name in FILES}
    assert (made.checkpoint, made.device, made.dtype, made.attention) == (CHECKPOINT, "cpu", "float32", "eager")
    assert made.command == "the command"
    observed = live.reference.observe(case).provenance
    assert observed is not None
    *others, ceiling = observed.overrides
    assert replace(observed, overrides=tuple(others)) == made
    assert ceiling == f"generate: max_new_tokens {TOKENS} in place of 8192"


def test_artefacts_stay_where_the_caller_wants_them(live: Live, case: Case, tmp_path: Path) -> None:
    output = live.reference.observe(case, out=tmp_path / "out").output
    files = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*.*")}
    assert {"result.mmd", "result_with_boxes.jpg"} <= files.keys()
    assert {name: path.stat().st_size for name, path in files.items()} == {
        name: artefact.bytes for name, artefact in output.artefacts.items()
    }
    assert files["result.mmd"].read_text(encoding="utf-8") == output.mmd


def test_logits_are_left_out_unless_asked_for(live: Live, case: Case) -> None:
    assert live.reference.observe(case).logits is None


def test_files_already_in_the_folder_are_left_and_not_listed(live: Live, case: Case, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    output = live.reference.observe(case, out=tmp_path).output
    assert "notes.txt" not in output.artefacts
    assert {path.name for path in tmp_path.iterdir()} >= {"notes.txt", "result.mmd"}


def test_summaries_alone_where_values_are_not_asked_for(
    live: Live, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.reference, "keep_values", False)
    observed, inputs = live.reference.observe(case), live.reference.inputs(case)
    assert (observed.logits, observed.inputs.values, inputs.values) == (None, None, None)
    assert all(seam.values is None and len(seam.sketch) for seam in observed.seams.values())


def test_tensors_leave_no_files(live: Live, case: Case, temporary: Path) -> None:
    assert live.reference.inputs(case).values
    assert worker_folders(temporary)
    assert not list(temporary.glob("dsocr-worker-*/*.safetensors"))


def test_what_it_cannot_do_is_said_in_its_words(live: Live, case: Case, tmp_path: Path) -> None:
    pid = live.reference.worker_pid
    absent = Case(tmp_path / "absent.png", case.prompt, case.preset, TOKENS)
    with pytest.raises(ReferenceFaultError, match=r"could not answer inputs\(absent-tiny-markdown\): it "):
        live.reference.inputs(absent)
    assert live.reference.observe(case).token_ids
    assert live.reference.worker_pid == pid


@pytest.mark.parametrize(
    ("request_", "kind"),
    [(Request(7, "flops", {"case": {}}), "AssertionError"), (Request(7, "learn", {}), "KeyError")],
)
def test_a_request_out_of_place_is_answered(request_: Request, kind: str, tmp_path: Path) -> None:
    answer = decode(RuntimeServer(tmp_path, lambda line: None).answer(request_))
    assert isinstance(answer, Failure)
    assert (answer.id, answer.kind) == (7, kind)
    assert "Traceback" in answer.traceback


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, {"python": "3.11"}),
        Request(2, "observe", {"case": {"prompt": "<image>\n\u6587"}}),
        Progress(3, "token", 1, None),
        Response(4, {"nan": [float("inf")]}, {"a": "float32 [1]"}, {}),
        Failure(5, "ValueError", "line one\nline two \ud800", ""),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_is_one_line(message: Hello | Request | Progress | Response | Failure) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Loading checkpoint shards: 50%",
        b"\xff\xfe\x00",
        b"17",
        b"null",
        b"[]",
        b"{}",
        b'{"type": "Goodbye"}',
        b'{"type": ["Hello"]}',
        b'{"type": "Hello", "pid": 1}',
        b'{"type": "Hello", "pid": 1, "versions": {}, "more": 2}',
        b'{"type": "Progress", "id": 1, "what": "token", "done"',
        b"[" * 100_000,
    ],
)
def test_no_message(line: bytes) -> None:
    with pytest.raises(ValueError, match="no message"):
        decode(line)


def test_a_case_travels_whole(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.page.parent)
    relative = Case(Path(case.page.name), case.prompt, case.preset, 7)
    assert relative.page_sha256  # which is kept beside the fields
    there = unpack_case(json.loads(json.dumps(pack_case(relative))))
    assert there == Case(case.page, case.prompt, case.preset, 7)
