"""The loader of a vendor folder, where what runs is what the hashes are of; and what the meters read."""

from __future__ import annotations

import hashlib
import os
import py_compile
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytest_dsocr.reference.vendor_code.meters import Clock, CudaEvents, Flops, clock_of

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.vendor_code.code import IMPORTED_AS, load_vendor_code
from tests.compare.made import random
from tests.reference.conftest import STAND_IN


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STAND_IN, tmp_path / "code", ignore=shutil.ignore_patterns("__pycache__")))


def test_an_older_source_compiled_beside_it_does_not_run(folder: Path) -> None:
    """Python takes a ``__pycache__`` for fresh where the source has the same size and time."""
    path = folder / "conversation.py"
    source = path.read_text(encoding="utf-8")
    path.write_text(f"{source}\nMARK = 1\n", encoding="utf-8")
    made = path.stat()
    py_compile.compile(str(path))
    path.write_text(f"{source}\nMARK = 2\n", encoding="utf-8")
    os.utime(path, ns=(made.st_atime_ns, made.st_mtime_ns))
    code = load_vendor_code(folder)
    assert vars(sys.modules[f"{IMPORTED_AS}.conversation"])["MARK"] == 2
    assert code.sha256["conversation.py"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_nothing_is_written_into_the_folder(folder: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    load_vendor_code(folder)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_what_cannot_be_imported_is_told_with_what_it_needs(folder: Path) -> None:
    (folder / "conversation.py").write_text("import no_such_package\n", encoding="utf-8")
    with pytest.raises(
        DsocrError, match=r"cannot be imported here \(No module named 'no_such_package'\); run in an env"
    ):
        load_vendor_code(folder)


def test_another_folder_is_imported_anew(folder: Path) -> None:
    first = load_vendor_code(STAND_IN)
    with (folder / "deepencoder.py").open("a", encoding="utf-8") as file:
        file.write("\nMARK = 1\n")
    second = load_vendor_code(folder)
    assert second.encoder.MARK == 1
    assert not hasattr(first.encoder, "MARK")
    assert [name for name in first.sha256 if first.sha256[name] != second.sha256[name]] == ["deepencoder.py"]
    assert second.modeling.__name__.startswith(IMPORTED_AS)


def counted(run: Any) -> float:
    meter = Flops()
    with torch.no_grad(), meter.running():
        start = meter.read()
        run()
        return meter.difference(start, meter.read())


@pytest.mark.parametrize(("m", "k", "n"), [(3, 5, 7), (1, 64, 512), (128, 1, 2)])
def test_a_product_of_matrices_is_two_operations_a_multiplication(m: int, k: int, n: int) -> None:
    assert counted(lambda: random(m, k) @ random(k, n)) == 2 * m * k * n


@pytest.mark.parametrize(("b", "heads", "tokens", "channels"), [(1, 1, 4, 8), (2, 4, 101, 16), (1, 12, 257, 64)])
def test_attention_on_the_processor_is_counted(b: int, heads: int, tokens: int, channels: int) -> None:
    x = random(b, heads, tokens, channels)
    assert counted(lambda: F.scaled_dot_product_attention(x, x, x)) == 4 * b * heads * tokens**2 * channels


def test_operations_are_those_between_two_readings_of_one_run() -> None:
    meter = Flops()
    a, b = random(2, 3), random(3, 4)
    with meter.running():
        a @ b
        start = meter.read()
        a @ b
        a @ b
        end = meter.read()
        a @ b
    assert (start, meter.difference(start, end)) == (48, 96)


def test_the_clock_gives_milliseconds() -> None:
    clock = Clock()
    assert clock.difference(1_000_000, 3_500_000) == 2.5
    with clock.running():
        start = clock.read()
        time.sleep(0.02)
        took_ms = clock.difference(start, clock.read())
    assert 20 <= took_ms < 2000


@pytest.mark.parametrize(("device", "kind"), [("cpu", Clock), ("cuda", CudaEvents), ("cuda:1", CudaEvents)])
def test_a_gpu_is_timed_on_its_stream_and_all_else_by_the_host(device: str, kind: type) -> None:
    assert type(clock_of(torch.device(device))) is kind


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_events_time_the_gpus_work_and_not_its_launch() -> None:
    meter = clock_of(torch.device("cuda"))
    x = random(4096, 4096).cuda()
    x @ x
    torch.cuda.synchronize()
    with meter.running():
        start, launched = meter.read(), time.perf_counter()
        for _ in range(20):
            x @ x
        end, launched_ms = meter.read(), (time.perf_counter() - launched) * 1e3
    assert meter.difference(start, end) > launched_ms
