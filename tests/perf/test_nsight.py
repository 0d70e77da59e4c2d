"""``dsocr trace import``: reports of Nsight Systems, made here after the schema that its documentation gives."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main

SCHEMA = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT NOT NULL, rangeId INT, category INT, color INT,
        text TEXT, globalTid INT, endGlobalTid INT, textId INT, domainId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL, eventClass INT, globalTid INT,
        correlationId INT, nameId INT NOT NULL, returnValue INT NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT, streamId INT,
        correlationId INT, globalPid INT, demangledName INT NOT NULL, shortName INT NOT NULL);
    INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'CatArrayBatchedCopy'), (3, 'cudaLaunchKernel_v7000'),
        (4, 'cudaStreamSynchronize_v3020'), (5, 'decode');
    INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, 'dsocr', 83886081, 2),
        (0, 75, 'another', 83886081, 3), (0, 75, 'another', 100663297, 2);
    INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES
        (0, 9000000, 59, 'decode', 100663297, 2);
"""
THREAD = 5 << 24 | 1
"""Thread 1 of process 5."""
STEP_NS = 1_000_000
Kernels = Sequence[tuple[int, int]]
"""What a step launches: each kernel's name, and its nanoseconds."""


def report(path: Path, kernels: Kernels, *, waits: bool = False, domain: int = 2) -> Path:
    """Two decode steps, whose kernels run long after they were launched, and two of another process."""
    with closing(sqlite3.connect(path)) as made:
        made.executescript(SCHEMA)
        for step in range(2):
            start = (step + 1) * STEP_NS
            how = (start, start + STEP_NS // 2, 59, THREAD, domain)
            made.execute(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, domainId, textId) VALUES (?,?,?,?,?,5)", how
            )
            for k, (name, ns) in enumerate(kernels):
                launched = start + 10 * k + 1
                for process in (5, 6):
                    call = launched, launched + 5, (process << 24) + 1, 10 * step + k
                    made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 3, 0)", call)
                    ran = 9 * STEP_NS, 9 * STEP_NS + ns, 10 * step + k, process << 24, name, name
                    made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, ?, ?)", ran)
            if waits:
                call = start + 400, start + 2400, THREAD, 90 + step
                made.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 4, 0)", call)
        made.commit()
    return path


A = [(1, 40_000), (1, 60_000)]


def test_a_reports_kernels_are_those_that_were_launched_in_a_range_of_its_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "import", str(report(tmp_path / "a.sqlite", A, waits=True))]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["decode", "2", "kernel", "gemm", "2", "0.1"],
        ["decode", "2", "wait", "cudaStreamSynchronize", "1", "0.002"],
    ]


@pytest.mark.parametrize(
    ("kernels", "waits", "sentence"),
    [
        (A, False, "no operator, kernel or line explains it"),
        ([*A, (2, 20_000)], False, "decode: +0.02 ms in CatArrayBatchedCopy, 1 more call a step"),
        (A, True, "decode: +0.002 ms waiting in cudaStreamSynchronize, 1 more call a step"),
        ([(1, 80_000), (1, 60_000)], False, "decode: +0.04 ms in gemm, slower in as many calls"),
    ],
)
def test_two_reports_are_compared_by_stage(
    kernels: Kernels, waits: bool, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = report(tmp_path / "a.sqlite", A), report(tmp_path / "b.sqlite", kernels, waits=waits)
    assert main(["trace", "import", *map(str, both)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == sentence


def test_what_is_no_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.sqlite").write_text("not a database, but a text that is long enough for one" * 9)
    other = report(tmp_path / "other.sqlite", A, domain=3)
    for path, why in ((tmp_path / "absent", "unable to open"), (tmp_path / "text.sqlite", "not a database")):
        assert main(["trace", "import", str(path)]) == 2
        assert why in capsys.readouterr().err
    assert main(["trace", "import", str(other)]) == 2
    assert "holds no NVTX range of domain dsocr; give what nsys export" in capsys.readouterr().err
