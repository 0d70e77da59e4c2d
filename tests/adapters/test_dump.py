"""``dump:``: what the session wrote as files passes as it does, and what is changed in a file is found in its stage."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from pytest_dsocr.adapters.dump import Dump
from pytest_dsocr.adapters.dump_files import read_tensors
from pytest_dsocr.cli.main import main
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import shipped
from tests.subjects.test_examples import held

CASE = "slide_1011-gundam-markdown"
PAGE = next(page for page in shipped("dev-3") if CASE.startswith(page.stem))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    assert main(["dump", str(PAGE), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def dumps(written: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(written, tmp_path / "dumps"))


def change(dumps: Path, name: str, how: Callable[[np.ndarray], np.ndarray]) -> None:
    np.save(dumps / CASE / f"{name}.npy", how(np.load(dumps / CASE / f"{name}.npy")))


def other_row(rows: np.ndarray) -> np.ndarray:
    rows[7] = rows[6]
    return rows


def test_what_the_session_wrote_passes_at_every_stage(written: Path) -> None:
    report = held(f"dump:{written}", PAGE.stem)
    assert report.passes
    left = {one.what for one in report.comparisons if one.verdict is Verdict.NOT_COMPARED}
    assert {what for what in left if "/" not in what} == {"dtypes", "result.mmd", "artefacts"}
    assert report.worst_error < 1e-6
    assert main(["dump", "check", str(written)]) == 0


@pytest.mark.parametrize(
    ("name", "how", "finding"),
    [
        ("input_ids", lambda ids: np.roll(ids, 1), ""),
        ("images_crop", lambda crops: crops[::-1], ""),
        ("sam.crops", lambda crops: crops[::-1], ""),
        ("sam.page", lambda seam: seam.swapaxes(-1, -2), ""),
        ("clip.page", lambda seam: seam.swapaxes(-1, -2), "transposed"),
        ("sam.page", lambda seam: np.moveaxis(seam, 1, -1), "channels last"),
        ("vision_fusion", lambda rows: rows.T, "transposed"),
        ("logits", other_row, ""),
        ("projector.page", lambda seam: seam[0], "the first axis is missing"),
    ],
)
def test_a_change_is_found_in_its_stage(
    name: str,
    how: Callable[[np.ndarray], np.ndarray],
    finding: str,
    dumps: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(dumps, name, how)
    report = held(f"dump:{dumps}", PAGE.stem)
    assert report.divergence is not None
    assert report.divergence.first.what == name
    if name == "logits":
        assert "at step 7" in report.divergence.first.measured
    assert main(["dump", "check", str(dumps)]) == bool(finding)
    assert finding in next(line for line in capsys.readouterr().out.splitlines() if f"{CASE}/{name} " in line)


def test_what_is_not_there_is_not_offered_and_what_is_there_is_compared(dumps: Path) -> None:
    for path in (dumps / CASE).iterdir():
        if path.stem not in ("input_ids", "sam.page", "logits", "tokens"):
            path.unlink()
    change(dumps, "logits", lambda rows: rows[:5])
    report = held(f"dump:{dumps}", PAGE.stem)
    made = {one.what: one for one in report.comparisons if one.verdict is not Verdict.NOT_COMPARED}
    assert {*made} == {"input_ids", "sam.page", "prefill", "prefill_best", "logits", "tokens"}
    assert made["tokens"].measured == "all 5; 92 later steps are not offered"
    assert {one.reason for one in report.comparisons if one.what not in made} == {Reason.NOT_OFFERED}
    assert report.passes


def deviating(dumps: Path) -> Path:
    """A program's own run, which said another token than its logits choose, and went on from it."""
    own = Path(shutil.copytree(dumps / CASE, dumps / "own"))
    tokens = np.load(own / "tokens.npy")
    tokens[5] += 1
    np.save(own / "tokens.npy", tokens)
    (own / "text.txt").write_text("another")
    return own


def test_a_command_is_led_along_the_reference_where_it_takes_tokens(dumps: Path) -> None:
    own = deviating(dumps)
    script = f"test -s $2 && cp -rT {dumps / CASE} $1 || cp -rT {own} $1; test -f $0"
    for tokens, steps in (("{tokens}", "all 97"), ("/dev/null", "all 6; 91 later steps are not offered")):
        report = held(f"dump:sh -c '{script}' {{page}} {{out}} {tokens}", PAGE.stem)
        found = {one.what: one for one in report.comparisons}
        assert found["tokens"].measured == steps
        assert [found[name].verdict is Verdict.WRONG for name in ("logits", "text")] == [False, True]


def test_every_format_is_read(tmp_path: Path) -> None:
    values = torch.arange(6).reshape(2, 3) / 4
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        own = values.to(dtype)
        save_file({"sam.page": own}, tmp_path / "a.safetensors")
        head = f'{{"dtype": "{str(dtype).removeprefix("torch.")}", "shape": [-1, 3]}}\n'
        (tmp_path / "sam.page.raw").write_bytes(head.encode() + bytes(own.view(torch.uint8).numpy()))
        found: list[Tensor] = [read_tensors(path)["sam.page"] for path in sorted(tmp_path.iterdir())]
        assert all(one.dtype is dtype and one.equal(own) for one in found)
    np.savez_compressed(tmp_path / "b.npz", **{"sam.page": values.numpy().astype(">f4")})
    np.save(tmp_path / "c.npy", values.bfloat16().view(torch.int16).numpy().view("V2"))
    assert read_tensors(tmp_path / "b.npz")["sam.page"].equal(values)
    assert read_tensors(tmp_path / "c.npy")["c"].equal(values.bfloat16())
    with pytest.raises(DsocrError, match="which another file there holds as well"):
        Dump.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", b"\x93NUMPY\x01\x00", "is damaged"),
        ("a.npy", b"\x80\x04K\x01.", "is damaged"),
        ("a.npz", b"PK\x03\x04", "is damaged"),
        ("a.safetensors", b"\xff" * 16, "is damaged"),
        ("a.raw", b'{"dtype": "float32", "shape": [2]}\n1234', "is damaged"),
        ("a.raw", b'{"dtype": "float32", "shape": [-1]}\n123', "is damaged"),
        ("a.raw", b'{"dtype": "complex64", "shape": [1]}\n12345678', "has a wrong dtype"),
        ("a.raw", b"1234", "does not fit"),
    ],
)
def test_a_damaged_file_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DsocrError, match=message) as caught:
        read_tensors(tmp_path / name)
    assert name in str(caught.value)
    assert "docs/dump.md" in str(caught.value)


def test_what_names_no_dump_is_refused(tmp_path: Path) -> None:
    for spec, message in (
        ("dump:absent", "there is no folder 'absent'"),
        (f"dump:{sys.executable} {{out}}", "hands no page over"),
        ("dump:no-such-program {page} {out}", "there is no command 'no-such-program'"),
    ):
        with pytest.raises(DsocrError, match=message):
            held(spec, PAGE.stem)
