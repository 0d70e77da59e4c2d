"""``dump:``: what the engine wrote as files passes as it does, and what is changed in a file is found in its stage."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_dsocr.adapters.dump import MORE_TOKENS, write
from pytest_dsocr.adapters.dump_files import LENGTHS, LOGITS, TOKENS
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.main import main
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.run.case import promised_and_absent
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import engine_subject
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.loading import close_subject, load_subject
from pytest_dsocr.subjects.protocol import NotOfferedError, Setup
from suites.cache import test_contents, test_pages
from suites.cache.walk import Walk
from tests.cache.own import EXACT
from tests.held import held

Array = np.ndarray[Any, Any]
CASE = "slide_1011-gundam-markdown"
PAGE = next(page for page in shipped("dev-3") if CASE.startswith(page.stem))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    assert main(["dump", str(PAGE), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def dumps(written: Path, tmp_path: Path) -> Path:
    """Return a copy to be changed."""
    return Path(shutil.copytree(written, tmp_path / "dumps"))


def change(dumps: Path, name: str, how: Callable[[Array], Array]) -> None:
    np.save(dumps / CASE / f"{name}.npy", how(np.load(dumps / CASE / f"{name}.npy")))


def test_what_the_engine_wrote_passes_at_every_stage(written: Path) -> None:
    report = held(f"dump:{written}", PAGE.stem)
    assert report.passes
    left = {one.what for one in report.comparisons if one.verdict is Verdict.NOT_COMPARED}
    assert {what for what in left if "/" not in what} == {"dtypes", "result.mmd", "artefacts"}
    assert report.worst_error < 1e-5, "float32 on another processor, and nothing narrower"
    assert main(["dump", "check", str(written)]) == 0


CHANGES: Sequence[tuple[str, Callable[[Array], Array], str]] = (
    ("input_ids", lambda ids: np.roll(ids, 1), ""),
    ("images_crop", lambda crops: crops[::-1], ""),
    ("sam.crops", lambda crops: crops[::-1], ""),
    ("sam.page", lambda seam: seam.swapaxes(-1, -2), ""),
    ("sam.page", lambda seam: np.moveaxis(seam, 1, -1), "expected [1, 192, 16, 16]: channels last"),
    ("clip.page", lambda seam: seam.swapaxes(-1, -2), "expected [1, 257, 192]: transposed"),
    ("projector.crops", lambda seam: seam.T, "expected [8, 100, 256]: axes in the opposite order"),
    ("projector.page", lambda seam: seam[0], "expected [1, 256, 256]: the first axis is missing"),
    ("logits", lambda rows: np.concatenate([rows[:7], rows[6:7], rows[8:]]), ""),
)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("name", "how", "finding"), CHANGES)
def test_a_change_is_found_in_its_stage(
    name: str, how: Callable[[Array], Array], finding: str, dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(dumps, name, how)
    report = held(f"dump:{dumps}", PAGE.stem)
    assert report.divergence is not None
    assert report.divergence.first.what == name
    assert "at step 7" in report.divergence.first.measured or name != "logits"
    assert main(["dump", "check", str(dumps)]) == bool(finding)
    [line] = [line for line in capsys.readouterr().out.splitlines() if f"  {name} " in line]
    assert finding in line


def test_the_first_wrong_block_is_found(dumps: Path) -> None:
    engine, case = engine_subject(Setup()), make_case(PAGE, "markdown", "gundam", family=DEEPSEEK_OCR)

    def keep(block: int, gave: torch.Tensor) -> None:
        np.save(dumps / CASE / f"prefill.{block}.npy", gave[(0,) * (block % 2)].numpy())  # rows may lack the first axis

    for k in range(2, 4):
        engine.module(f"model.layers.{k}").register_forward_hook(lambda *call, k=k: keep(k, call[2]))
    inputs = engine.inputs(PAGE, prompt=case.prompt, preset=case.preset)
    engine.prefill(inputs, torch.from_numpy(np.load(dumps / CASE / "vision_fusion.npy")))
    change(dumps, "prefill.3", lambda rows: rows * 1.01)
    report = held(f"dump:{dumps}", PAGE.stem)
    blocks = {one.what: one.passes for one in report.comparisons if "/" in one.what and one.error is not None}
    assert blocks == {"prefill/2": True, "prefill/3": False}
    assert report.divergence is not None
    assert report.divergence.first.what == "prefill/3"
    asked = CheckedSubject(load_subject(f"dump:{dumps}", Setup()))
    parts = {one.name: one for one in parts_of(asked, asked.inputs(case))}
    assert parts["prefill/3"].given[0].equal(asked.block_outputs["prefill/2"])
    assert "prefill/2" not in parts, "its input was not written"
    assert main(["dump", "check", str(dumps)]) == 0


@pytest.mark.parametrize("last", ["logits", "prefill", "vision_fusion"])
def test_what_is_not_there_is_not_offered_and_what_is_there_is_compared(last: str, dumps: Path) -> None:
    for path in (dumps / CASE).iterdir():
        if path.stem not in ("input_ids", "sam.page", "tokens", last):
            path.unlink()
    if last == "logits":
        change(dumps, "logits", lambda rows: rows[:5])
    report = held(f"dump:{dumps}", PAGE.stem)
    made = {one.what: one for one in report.comparisons if one.verdict is not Verdict.NOT_COMPARED}
    decoding = {"prefill", "prefill_best", "logits", "tokens"} if last != "vision_fusion" else {last}
    assert {*made} == {"input_ids", "sam.page"} | decoding
    assert "tokens" not in made or made["tokens"].measured.endswith("later steps are not offered")
    assert {one.reason for one in report.comparisons if one.what not in made} == {Reason.NOT_OFFERED}
    assert report.passes
    found = [promised_and_absent(level, report) for level in (None, Level.TEXT, Level.INPUTS)]
    assert found == ["", "read", "images_crop, images_ori, images_seq_mask, images_spatial_crop, read"]
    more = "prefill, read, step" if last == "vision_fusion" else "read, step, vision_fusion"
    absent = f"images_crop, images_ori, images_seq_mask, images_spatial_crop, {more}"
    assert promised_and_absent(Level.STAGES, report) == absent


@pytest.mark.parametrize(("value", "wrong"), [(-99.0, set()), (99.0, {"tokens"})])
def test_padded_logits_are_noted_and_a_chosen_padding_is_wrong(value: float, wrong: set[str], dumps: Path) -> None:
    for name in (TOKENS, LENGTHS, "prefill"):
        (dumps / CASE / f"{name}.npy").unlink()
    notes: list[str] = []
    change(dumps, "logits", lambda rows: np.pad(rows[:1], ((0, 0), (0, 8)), constant_values=value))
    with watching(notes):
        report = held(f"dump:{dumps}", PAGE.stem)
    assert [note.split(":")[0] for note in notes] == ["the subject's vocabulary is padded"]
    assert {one.what for one in report.comparisons if not one.passes} == wrong
    assert "prefill" in {one.what for one in report.comparisons if one.verdict is Verdict.DRIFT}


def test_what_was_not_written_is_not_made_up(dumps: Path) -> None:
    (dumps / CASE / "images_crop.npy").unlink()
    asked = CheckedSubject(load_subject(f"dump:{dumps}", Setup()))
    case = make_case(PAGE, "markdown", "gundam", family=DEEPSEEK_OCR)
    with pytest.raises(NotOfferedError, match=r"^not offered: images_crop of the inputs"):
        asked.inputs(case)
    inputs = asked.inputs(case, partial=True)
    fused = asked.vision(inputs)["vision_fusion"]
    others = {**inputs, "images_ori": -inputs["images_ori"]}
    state, _ = asked.prefill(inputs, fused)
    asks: list[Callable[[], object]] = [
        lambda: asked.inputs(replace(case, preset=DEEPSEEK_OCR.presets["tiny"])),
        lambda: asked.vision(others),
        lambda: asked.prefill(others, fused),
        lambda: asked.prefill(inputs, -fused),
        lambda: asked.prefill(inputs, None),
        lambda: asked.step(state, 7),
        lambda: KvProbe(state).size,
    ]
    for ask in asks:
        with pytest.raises(NotOfferedError):
            ask()


def test_a_command_is_led_along_the_reference_where_it_takes_tokens(dumps: Path) -> None:
    """Without ``{tokens}`` it writes a token that its logits do not choose."""
    own = Path(shutil.copytree(dumps / CASE, dumps / "own"))
    np.save(own / "tokens.npy", np.load(own / "tokens.npy") + (np.arange(97) == 5))
    (own / "text.txt").unlink()
    script = f"test -s $2 && cp -rT {dumps / CASE} $1 || cp -rT {own} $1; test -f $0"
    for tokens, left in (("{tokens}", ""), ("/dev/null", "; 91 later steps are not offered")):
        report = held(f"dump:sh -c '{script}' {{page}} {{out}} {tokens}", PAGE.stem)
        found = {one.what: one for one in report.comparisons}
        assert found["logits"].verdict is Verdict.DRIFT
        assert found["tokens"].measured.endswith(f"first differing step 5{left}")
        assert found["tokens"].signs == {Symptom.NOT_ITS_BEST}


TWO, MOST = tuple(page for page in shipped("dev-3") if page != PAGE), 2 + MORE_TOKENS


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of prepared dumps of two pages, for one token and for more, with variants that have mistakes."""
    folder = tmp_path_factory.mktemp("prepared")
    for page, most in product(TWO, (1, MOST)):
        case = make_case(page, "markdown", "tiny", most, family=DEEPSEEK_OCR)
        made = write(Setup(), case, folder).rename(folder / f"{page.stem}-{most}")
        lengths, tokens, logits = (np.load(made / f"{name}.npy") for name in (LENGTHS, TOKENS, LOGITS))
        planted = {"stuck": lengths * 0 + lengths[0], "twice": lengths + lengths[0], "other": tokens + (most > 1)}
        for name, mistake in {**planted, "leaky": logits * np.float32(1.01)}.items():
            np.save(made / f"{name}.npy", mistake)
    return folder


STEPS = {f"cache/length after step {k}" for k in range(1, 9)}
OF_A_PAGE = {"cache/length after prefill", "cache/length of a page after another"}
PLANTED: Mapping[str, tuple[str, set[str]]] = {
    "nothing": ("true", set()),
    "a cache that does not grow": (f"mv stuck.npy {LENGTHS}.npy", STEPS),
    "a prompt counted twice": (f"mv twice.npy {LENGTHS}.npy", STEPS | OF_A_PAGE),
    "state of the page before": (f"test ! -e $L || grep -q $B $L || mv leaky.npy {LOGITS}.npy", {"prefill/again"}),
}
Command = Callable[[str], Any]


@pytest.fixture
def command(prepared: Path, tmp_path: Path) -> Iterator[Command]:
    """Load a command that writes what was prepared, and does something to it."""
    with ExitStack() as closing:

        def load(deed: str) -> Any:
            copied = f"B=$(basename $0 .png); L={tmp_path}/last; cp -rT {prepared}/$B-$2 $1; cd $1"
            script = f"{copied}; {deed}; echo $B > $L"
            subject = load_subject(f"dump:sh -c '{script}' {{page}} {{out}} {{max_new_tokens}}", Setup())
            closing.callback(close_subject, subject)
            return subject

        yield load


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_command_is_run_again_for_more_tokens_and_for_the_page_before(mistake: str, command: Command) -> None:
    deed, expected = PLANTED[mistake]
    subject, made = command(deed), list[Comparison]()
    check: Any = made.extend
    walk = Walk.along(subject, TWO[0], family=DEEPSEEK_OCR)
    test_contents.test_it_grows_by_one_in_every_layer_a_step(walk, KvProbe, check)
    test_pages.test_a_prefill_begins_with_an_empty_cache(TWO, walk, EXACT, subject, check)
    assert {one.what for one in made if one.verdict is Verdict.MATCH} >= (STEPS | OF_A_PAGE) - expected
    assert {one.what for one in made if not one.passes} == expected


def test_a_command_that_chooses_others_when_asked_for_more_is_an_error(command: Command) -> None:
    with pytest.raises(SubjectFaultError, match="chose others than its first 1 token where it was asked for more"):
        Walk.along(command(f"mv other.npy {TOKENS}.npy"), TWO[0], family=DEEPSEEK_OCR)


def test_what_names_no_dump_is_refused(tmp_path: Path) -> None:
    for spec, message in (
        ("dump:absent", "there is no folder 'absent'"),
        (f"dump:{sys.executable} {{out}}", "hands no page over"),
        ("dump:no-such-program {page} {out}", "there is no command 'no-such-program'"),
    ):
        with pytest.raises(DsocrError, match=message):
            held(spec, PAGE.stem)
