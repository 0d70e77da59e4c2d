"""The files of a dump: each format is read, and whatever is damaged ends in one error that names the file."""

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from os import mkfifo
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file

from pytest_dsocr.adapters.dump_files import ADVICE, LENGTHS, LOGITS, TEXT, TOKENS, Dump, read_tensors
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup

CASE = make_case(shipped("dev-3")[0], "markdown", "tiny", family=DEEPSEEK_OCR)
VALUES = torch.arange(6).reshape(2, 3) / 4


def numpy_bytes(write: Callable[..., None], *values: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    write(file, *values, **named)
    return file.getvalue()


def raw_bytes(values: torch.Tensor, dtype: torch.dtype = torch.float32) -> bytes:
    head = json.dumps({"dtype": str(dtype).removeprefix("torch."), "shape": [-1, values.shape[-1]]})
    return f"{head}\n".encode() + values.to(dtype).view(torch.uint8).numpy().tobytes()


def test_every_format_is_read(tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        own = VALUES.to(dtype)
        save_file({"a": own}, tmp_path / "of.safetensors")
        (tmp_path / "a.raw").write_bytes(raw_bytes(VALUES, dtype))
        found = [read_tensors(tmp_path / name)["a"] for name in ("of.safetensors", "a.raw")]
        assert all(one.dtype is dtype and one.equal(own) for one in found)
    np.savez_compressed(tmp_path / "of.npz", a=VALUES.numpy().astype(">f4"), none=np.empty((0, 3), np.float32))
    np.save(tmp_path / "b.npy", VALUES.bfloat16().view(torch.int16).numpy().view("V2"))
    np.save(tmp_path / "turned.npy", np.asfortranarray(VALUES.numpy()))
    (tmp_path / "none.raw").write_bytes(b'{"dtype": "float32", "shape": [0, 3]}\n')
    assert read_tensors(tmp_path / "of.npz")["a"].equal(VALUES)
    assert read_tensors(tmp_path / "b.npy")["b"].equal(VALUES.bfloat16())
    assert read_tensors(tmp_path / "turned.npy")["turned"].equal(VALUES)
    assert {read_tensors(tmp_path / name)["none"].shape for name in ("of.npz", "none.raw")} == {(0, 3)}
    with pytest.raises(DsocrError, match=r"of.npz holds a, which another file there holds as well"):
        Dump.read(tmp_path)


GOOD: Mapping[str, bytes] = {
    "a.npy": numpy_bytes(np.save, VALUES.numpy()),
    "stored.npz": numpy_bytes(np.savez, a=VALUES.numpy()),
    "packed.npz": numpy_bytes(np.savez_compressed, a=VALUES.numpy()),
    "a.safetensors": save({"a": VALUES}),
    "a.raw": raw_bytes(VALUES),
}
SHAPE = {name: b"[-1, 3]" if name == "a.raw" else b"[2,3]" if "safe" in name else b"(2, 3)" for name in GOOD}
SHAPES = ("-9", "1e3", "9" * 30, "null", f"{10**12}, 1", f"{2**62}, 4", "[" * 9_000)
DTYPE = {name: b"float32" if name == "a.raw" else b"F32" if "safe" in name else b"<f4" for name in GOOD}
DTYPES = ("O", "|O", "|S0", "V2", "c8", "F4", "F8_E8M0", "M8[s]", "complex64", "f0", "", "\\u0000", "'")
MOST_PLACES = 160
MOST_MIB = 1


def damaged(name: str, good: bytes) -> Iterator[bytes]:
    """Yield what may become of a file: cut, lengthened, a byte changed anywhere, another header."""
    places = range(0, len(good), 1 + len(good) // MOST_PLACES)
    flipped = [(at, good[at] ^ mask) for at in places for mask in (1, 0x10, 0x80, 0xFF)]
    yield from (good[:at] for at in places)
    yield from (good + b"\n" * more for more in (1, 12))
    yield from (good[:at] + bytes([value]) + good[at + 1 :] for at, value in flipped)
    shape = SHAPE[name].decode()
    yield from (good.replace(SHAPE[name], f"{shape[0]}{one}{shape[-1]}".encode()) for one in SHAPES)
    yield from (good.replace(DTYPE[name], one.encode()) for one in DTYPES)
    yield from (b"", b"\x80\x04K\x01.", b"{}", b"PK\x03\x04", b"\xff" * 64, b"{" * 90_000)
    yield b"\x93NUMPY\x09\x00" + good[8:]


@pytest.mark.parametrize("name", GOOD)
def test_a_damaged_file_is_named_whatever_its_reader_raises(name: str, tmp_path: Path) -> None:
    path, refused, contents = tmp_path / name, list[str](), [*damaged(name, GOOD[name])]
    for content in contents:
        path.write_bytes(content)
        tracemalloc.start()
        try:
            tensors = read_tensors(path)
        except DsocrError as error:
            refused.append(str(error))
            tensors = {}
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(one.nbytes for one in tensors.values()) <= len(content)
        assert most < MOST_MIB << 20, content
    assert {one for one in refused if not one.startswith(f"{path} ") or not one.endswith(ADVICE)} == set()
    assert len(refused) > len(contents) / 5, "all that were cut, and most headers"


def arrays(folder: Path, **given: Any) -> None:
    for name, value in given.items():
        np.save(folder / f"{name}.npy", np.asarray(value))


WRONG: Mapping[str, Mapping[str, Any]] = {
    LOGITS: {LOGITS: 1.0},
    "prefill": {"prefill": 1.0},
    TOKENS: {TOKENS: [1.0, np.nan]},
    "tokens ": {TOKENS: np.arange(4) + 0.6},
    "tokens  ": {TOKENS: [1e30]},
    "tokens   ": {TOKENS: [-1]},
    LENGTHS: {LENGTHS: [np.nan], TOKENS: [1]},
    "cache_lengths ": {LENGTHS: [7, np.inf], TOKENS: [1, 2]},
}


@pytest.mark.parametrize("name", WRONG)
def test_values_that_cannot_be_right_are_an_error_of_their_file(name: str, tmp_path: Path) -> None:
    arrays(tmp_path, **WRONG[name])
    with pytest.raises(DsocrError, match=rf"/{name.strip()}.npy holds .*{ADVICE}"):
        Dump.read(tmp_path)


def test_whole_numbers_in_floats_are_tokens(tmp_path: Path) -> None:
    arrays(tmp_path, tokens=[[3.0, 4.0]], cache_lengths=np.array([7, 8], np.uint8))
    dump = Dump.read(tmp_path)
    assert [*dump.tokens] == [3, 4]
    assert dump.row(LENGTHS, [3]) == 8


@pytest.mark.parametrize("name", [LOGITS, LENGTHS])
def test_rows_of_which_nobody_knows_the_tokens_are_an_error(name: str, tmp_path: Path) -> None:
    arrays(tmp_path, **{name: np.ones((2, 5) if name == LOGITS else 2)})
    with pytest.raises(DsocrError, match=rf"holds 2 rows of {name} and no {TOKENS}"):
        Dump.read(tmp_path)
    arrays(tmp_path, **{name: np.ones((1, 5) if name == LOGITS else 1)})
    assert Dump.read(tmp_path).row(name, []) is not None


IRREGULAR: Mapping[str, Callable[[Path], object]] = {
    "device": lambda path: path.symlink_to("/dev/zero"),
    "fifo": mkfifo,
    "folder": Path.mkdir,
    "nowhere": lambda path: path.symlink_to("absent"),
}


@pytest.mark.parametrize("name", [f"{LOGITS}.npy", TEXT])
@pytest.mark.parametrize("kind", IRREGULAR)
def test_what_is_no_regular_file_is_an_error_by_name(kind: str, name: str, tmp_path: Path) -> None:
    IRREGULAR[kind](tmp_path / name)
    with pytest.raises(DsocrError, match=rf"/{name} (is not a regular file|cannot be read)"):
        Dump.read(tmp_path)


def test_a_case_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CASE.id).touch()
    subject = load_subject(f"dump:{tmp_path}", Setup())
    with pytest.raises(SubjectFaultError, match=rf"{CASE.id} cannot be read \(Not a directory\)"):
        CheckedSubject(subject).inputs(CASE)
