"""Answers of the engine that later runs use again: of the same case under the same conditions, and of no other."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.packing import pack
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference import kept
from pytest_dsocr.reference.engine import EngineReference, EngineRuntime
from pytest_dsocr.reference.kept import KeptAnswers
from pytest_dsocr.reference.opening import WantedReference
from pytest_dsocr.run.references import kept_in
from pytest_dsocr.subjects.calls import watching
from tests.crops import cropped_case
from tests.report.made import config

CHECKPOINT = resolve("synthetic:tiny")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return cropped_case(tmp_path_factory.mktemp("pages"), "markdown", 4)


@pytest.fixture(scope="module")
def answer(case: Case) -> ReferenceResult:
    return EngineRuntime.load(CHECKPOINT.name).observe(case, keep_values=True)


@pytest.fixture
def answers(answer: ReferenceResult, case: Case, tmp_path: Path) -> KeptAnswers:
    """Return a folder with one answer."""
    assert answer.provenance is not None
    found = KeptAnswers(tmp_path / "answers", answer.provenance, CHECKPOINT.tokenizer)
    found.keep(case, answer)
    return found


def file_of(answers: KeptAnswers) -> Path:
    [path] = answers.folder.iterdir()
    return path


def test_a_kept_answer_is_the_whole_answer(answers: KeptAnswers, answer: ReferenceResult, case: Case) -> None:
    """Compare it with the answer, and the size of its file with that of the pixels, which are not in it."""
    found = answers.find(case)
    assert found is not None
    (actual, tensors), (expected, made) = pack(found), pack(answer)
    assert actual == {**expected, "tokens": answer.token_ids}
    assert tensors.keys() == made.keys()
    assert all(tensors[name].equal(tensor) and tensors[name].dtype == tensor.dtype for name, tensor in made.items())
    assert found.provenance == answer.provenance
    assert answers.has(case)
    assert made["inputs/images_crop"].nbytes > 4 * file_of(answers).stat().st_size


OTHER_CASES: dict[str, Any] = {
    "max_new_tokens": 5,
    "prompt": DEEPSEEK_OCR.prompts["free"],
    "preset": DEEPSEEK_OCR.presets["tiny"],
}


@pytest.mark.parametrize("field", OTHER_CASES)
def test_it_is_of_no_other_case(field: str, answers: KeptAnswers, case: Case) -> None:
    assert answers.find(replace(case, **{field: OTHER_CASES[field]})) is None


def test_it_is_of_no_other_page_of_that_name(answers: KeptAnswers, case: Case, tmp_path: Path) -> None:
    with Image.open(case.page) as page:
        page.putpixel((0, 0), 77)
        page.save(tmp_path / case.page.name)
    assert answers.find(replace(case, page=tmp_path / case.page.name)) is None


@pytest.mark.parametrize("name", ["checkpoint_sha256", "device", "dtype", "attention", "resampling", "versions"])
def test_it_is_of_no_other_provenance(name: str, answers: KeptAnswers, case: Case) -> None:
    other = {"torch": "0"} if name == "versions" else "other"
    assert replace(answers, made=replace(answers.made, **{name: other})).find(case) is None  # type: ignore[arg-type]
    assert replace(answers, made=replace(answers.made, date="2000-01-01", command="other")).find(case) is not None


def test_it_is_of_no_other_code_or_environment(
    answers: KeptAnswers, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
        assert answers.find(case) is None
    assert answers.find(case) is not None
    monkeypatch.setattr(kept, "own_sha256", lambda: "other")
    assert answers.find(case) is None


@pytest.mark.parametrize(("device", "is_found"), [("cpu", False), ("nvidia-h200", True)])
def test_threads_of_the_host_count_only_for_a_cpu(
    device: str,
    is_found: bool,
    answers: KeptAnswers,
    answer: ReferenceResult,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = replace(answers, made=replace(answers.made, device=device))
    own.keep(case, answer)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert own.has(case) is is_found


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def linked(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("own")))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


SPOILT: dict[str, Callable[[Path], object]] = {
    "a bit": flipped,
    "its end": lambda path: os.truncate(path, path.stat().st_size - 1),
    "everything": lambda path: os.truncate(path, 0),
    "a link": linked,
    "a pipe": piped,
    "writable for others": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_file_is_no_answer(spoil: Callable[[Path], object], answers: KeptAnswers, case: Case) -> None:
    spoil(file_of(answers))
    assert answers.find(case) is None


def test_an_answer_under_the_name_of_another_is_none(answers: KeptAnswers, case: Case) -> None:
    other = replace(case, max_new_tokens=5)
    file_of(answers).rename(answers._place_of(other)[0])
    assert answers.has(other)
    assert answers.find(other) is None


def test_another_users_file_is_no_answer(answers: KeptAnswers, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert answers.find(case) is None


def test_answers_that_were_not_used_make_room(
    answers: KeptAnswers, answer: ReferenceResult, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [replace(case, max_new_tokens=tokens) for tokens in (5, 6)]
    answers.keep(others[0], answer)
    for age_s, one in ((200, case), (100, others[0])):
        os.utime(answers._place_of(one)[0], (0, 1e9 - age_s))
    answers.find(case)
    monkeypatch.setattr(kept, "MOST_BYTES", 2 * answers._place_of(case)[0].stat().st_size + 100)
    answers.keep(others[1], answer)
    assert [answers.has(one) for one in (case, *others)] == [True, False, True]


def test_a_folder_that_cannot_be_written_is_no_error(answer: ReferenceResult, case: Case, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert answer.provenance is not None
    answers = KeptAnswers(tmp_path / "file", answer.provenance, CHECKPOINT.tokenizer)
    answers.keep(case, answer)
    assert not answers.has(case)
    assert answers.find(case) is None


@pytest.fixture
def reference(answers: KeptAnswers) -> Iterator[EngineReference]:
    opened = EngineReference(WantedReference(CHECKPOINT), kept=answers.folder, time_limit_s=60)
    yield opened
    opened.close()


def test_a_run_needs_no_engine_if_all_is_kept(reference: EngineReference, answer: ReferenceResult, case: Case) -> None:
    with watching([]) as watched:
        reference.start_for([case])
        seen = reference.observe(case)
    assert seen.steps == answer.steps
    assert reference._engine.worker_pid is None
    assert any("--dsocr-kept-answers=off" in note for note in watched.notes)


@pytest.mark.dsocr_slow
def test_it_loads_meanwhile_reads_ahead_and_keeps_every_answer(reference: EngineReference, case: Case) -> None:
    others = [replace(case, max_new_tokens=tokens) for tokens in (2, 3)]
    reference.start_for([case, *others], ahead=True)
    first = reference.observe(others[0])
    assert reference._next is not None
    assert reference._next[0] == others[1]
    second = reference.observe(others[1])
    assert (len(first.steps), len(second.steps)) == (2, 3)
    later = EngineReference(reference.wanted, kept=reference._folder)
    assert [later.observe(one).steps for one in others] == [first.steps, second.steps]
    assert later._engine.worker_pid is None
    later.close()


def test_a_run_that_ends_meanwhile_waits_for_nothing(
    reference: EngineReference, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    reference.start_for([replace(case, max_new_tokens=2)])
    reference.close()
    assert "A new worker is started" not in caplog.text
    assert (reference._engine.worker_pid, reference._thread) == (None, None)


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_nothing_is_kept_for_an_isolated_subject_or_if_turned_off_or_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept_in(config()) is not None
    assert kept_in(config(kept_answers=tmp_path)) == tmp_path
    assert kept_in(config(kept_answers="off")) is None
    assert kept_in(config(isolate=True, kept_answers=tmp_path)) is None
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert kept_in(config()) is None
