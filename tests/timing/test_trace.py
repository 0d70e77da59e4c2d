"""``dsocr bench --trace``: a planted slow-down is attributed to its stage and line, and nothing else is."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import convert

from pytest_dsocr.cli.main import main
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.timing.probe.counting import kernels_by_stage
from pytest_dsocr.timing.probe.lines import BEFORE, Lines, Marks, Own
from pytest_dsocr.timing.probe.page import PageProbe
from pytest_dsocr.timing.probe.tracing import ProfileReading, trace
from pytest_dsocr.timing.trace import NOTHING, difference
from pytest_dsocr.timing.traced import KERNEL, OPERATOR, PYTHON, SourceLine, TraceRow, TraceTable
from suites.contract.asked import own_preset
from tests.timing import planted

DEVICE, DTYPE = os.environ.get("DSOCR_TRACE_ON", "cpu:float32").split(":")
"""Device and dtype of the traced engine, such as ``cuda:bfloat16``."""
OWN = "tests", "pytest_dsocr"
TOKENS = 14
PLANTED = {
    planted.CacheConcatenated: (r"decode: \+\S+ ms in aten::cat, 10 more calls a step, from {}", "torch.cat([old_keys"),
    planted.CastsWeights: (r"decode: \+\S+ ms in aten::_to_copy, 1 more call a step, from {}", "to(torch.float64)"),
    planted.QuadraticNgrams: (
        r"decode: \+\S+ ms in Python at {} \((?:twice|<setcomp>)\), as steps grow",
        "return {tokens[b]",
    ),
    planted.VisionTwice: (r"sam: \+\S+ ms, 1 more run a page, from {}", "self.engine.pipeline.vision("),
    planted.WaitsInStep: (
        r"decode: \+\S+ ms waiting in aten::_local_scalar_dense, 1 more call a step, from {}",
        "logits.isfinite().all().item()",
    ),
}
"""Sentence about each subject, and a part of the line that the sentence names."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Use one thread: threads that wait for each other would change the operators' times."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def mini() -> Engine[Any]:
    return Engine.from_checkpoint("mini", device=DEVICE, dtype=DTYPE)


def traced(
    engine: Engine[Any], kind: type[EngineSubject], file: Path, preset: Preset, tokens: int = TOKENS
) -> TraceTable:
    how: Any = {"prompt": "<image>\nFree OCR.", "preset": preset, "max_new_tokens": tokens, "device": DEVICE}
    probe = PageProbe(kind(engine), shipped("dev-3")[0], **how)
    probe.read()
    return convert(json.loads(json.dumps(trace(probe, Own([], OWN), file))), TraceTable)


@pytest.fixture(scope="module")
def of_a(mini: Engine[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[TraceTable, Path]:
    """Return the engine's table and its trace file."""
    file = tmp_path_factory.mktemp("traces") / "A.trace.json"
    return traced(mini, EngineSubject, file, DEEPSEEK_OCR.presets["tiny"]), file


def line_of(text: str) -> str:
    [number] = [k for k, line in enumerate(Path(planted.__file__).read_text().splitlines(), 1) if text in line]
    return f"tests/timing/planted.py:{number}"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_a_planted_slow_down_is_named_by_its_stage_and_its_line(
    kind: type[EngineSubject], mini: Engine[Any], of_a: tuple[TraceTable, Path], tmp_path: Path
) -> None:
    found = difference(of_a[0], traced(mini, kind, tmp_path / "B.trace.json", DEEPSEEK_OCR.presets["tiny"]))
    sentence, text = PLANTED[kind]
    print(found.sentence)  # noqa: T201  # what a run on a GPU is asked for
    assert re.fullmatch(sentence.format(re.escape(line_of(text))), found.sentence), [*found.lines]


@pytest.mark.dsocr_slow
def test_nothing_is_said_of_a_side_against_itself(tiny: Engine[Any], tmp_path: Path) -> None:
    small = own_preset("small view", 128, 128, crop=False)
    tables = [traced(tiny, EngineSubject, tmp_path / "trace.json", small, 6) for _ in range(3)]
    assert [difference(a, b).sentence for a in tables for b in tables] == [NOTHING] * 9


TRACE_FIELDS = {"ph", "name", "pid", "tid", "ts"}


def check(events: list[dict[str, Any]]) -> None:
    """Check events against the Trace Event format and Perfetto, which drops events that do not nest exactly."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = [(one["pid"], one["tid"]) for one in events if one["ph"] == "M" and one["name"] == "thread_name"]
    for one in events:
        assert one["ph"] in ("X", "M")
        assert TRACE_FIELDS <= one.keys() <= {*TRACE_FIELDS, "cat", "dur", "args"}
        assert (type(one["pid"]), type(one["tid"]), type(one["name"])) == (int, int, str)
        if one["ph"] == "M":
            assert one["name"] in ("process_name", "thread_name")
            assert [*one["args"]] == ["name"]
            continue
        assert min(one["ts"], one["dur"]) >= 0
        start = round(1e3 * one["ts"])
        tracks[one["pid"], one["tid"]].append((start, start + round(1e3 * one["dur"])))
    assert named == [*tracks] == [(1, tid) for tid in range(1, len(named) + 1)], "Perfetto puts thread 1 of 1 first"
    for spans in tracks.values():
        open_: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            open_ = [one for one in open_ if one > start]
            assert all(end <= one for one in open_), "two events of a track overlap"
            open_.append(end)


def test_a_trace_is_of_chromes_format_and_has_the_stages_on_a_track_of_their_own(of_a: tuple[TraceTable, Path]) -> None:
    content = json.loads(of_a[1].read_bytes())
    assert content.keys() == {"traceEvents"}
    events = content["traceEvents"]
    check(events)
    stages = Counter(one["name"] for one in events if one.get("cat") == "stage")
    steps = {f"decode {k}" for k in range(TOKENS - 1)}
    assert {one for one in stages if one.startswith("decode")} == steps
    twice = {"prefill 0", "sam 0", "vision_fusion 0", *steps}
    assert {stages[one] for one in twice} == {2}, "stage by stage, and within the page"
    assert stages["page 0"] == 1
    assert len({(one["pid"], one["tid"]) for one in events if one.get("cat") == "stage"}) == 1
    functions = {one["name"]: one["args"]["from"] for one in events if one.get("cat") == "python_function"}
    assert functions["decode_step (pipeline.py)"].startswith("pytest_dsocr/engine/pipeline.py(")
    assert of_a[1].stat().st_size < 16e6
    for broken in ({"dur": -1.0}, {"ph": "B"}, {"pid": "1"}, {"dur": 1e9, "ts": events[-1]["ts"] + 1e-2}):
        with pytest.raises(AssertionError):
            check([*events, {**events[-2], **broken}])


@pytest.mark.dsocr_slow
def test_two_processes_are_traced_and_the_sentence_stands_under_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sides = "subject:engine", "subject:tests.timing.planted:casts_weights"
    assert main(["bench", *sides, "--counts", "--preset=tiny", "--max-new-tokens=4", "--trace", "--out=out.json"]) == 1
    said, sentence = capsys.readouterr().out, PLANTED[planted.CastsWeights][0].format(line_of("to(torch.float64)"))
    assert re.search(rf"^verdict .*\ntrace +{sentence}\nstage ", said, re.MULTILINE)
    kept = json.loads(Path("out.json").read_bytes())["trace"]
    assert re.fullmatch(sentence, kept["sentence"])
    assert (kept["changes"][0]["change"], kept["changes"][0]["calls"]) == ("new", [0, 1])
    assert sorted(path.name for path in Path("dsocr-trace").iterdir()) == ["A.trace.json", "B.trace.json"]


HERE, THERE = (SourceLine("cache.py", "append", line, f"line {line}") for line in (88, 99))
OTHER = SourceLine("grown.py", "grow", 7, "grown")


def table(*rows: TraceRow, steps: int = 10) -> TraceTable:
    whole = TraceRow("decode", OPERATOR, "aten::mm", (SourceLine("model.py", "forward", 1, "mm"),), 100, 5.0)
    return TraceTable({"decode": steps, "page": 1}, [whole, *rows])


def row(
    count: int, ms: float, place: SourceLine = HERE, kind: str = OPERATOR, name: str = "aten::cat", growth: int = 0
) -> TraceRow:
    return TraceRow("decode", kind, name, (place,), count, *((0.0, ms) if kind == KERNEL else (ms, 0.0)), growth)


GROWING = row(99, 4, kind=PYTHON, growth=3)
WAITING = [row(10, 0.001, name="aten::nonzero"), row(30, 1), row(10, 0.5, kind=PYTHON)]


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ([row(10, 1)], [row(10, 9)], NOTHING),
        ([row(20, 1)], [row(20, 1, HERE._replace(line=90))], NOTHING),
        ([row(20, 1)], [row(20, 1, THERE)], NOTHING),
        (
            [row(20, 1)],
            [row(20, 1, THERE), row(240, 1.2, OTHER)],
            "+1.2 ms in aten::cat, 24 more calls a step, from grown.py:7",
        ),
        ([row(250, 1.2)], [row(10, 0.2)], "-1 ms in aten::cat, 24 fewer calls a step, from cache.py:88"),
        ([row(10, 1, kind=PYTHON)], [row(11, 1.1, kind=PYTHON)], NOTHING),
        ([row(10, 1, kind=PYTHON)], [GROWING], "+3 ms in Python at cache.py:88 (append), as steps grow"),
        ([], WAITING, "+1.5 ms waiting in aten::nonzero, 1 more call a step, from cache.py:88"),
    ],
)
def test_counts_that_differ_are_told_and_what_moved_is_not(a: list[TraceRow], b: list[TraceRow], sentence: str) -> None:
    found = difference(table(*a), table(*b))
    assert (found.sentence.removeprefix("decode: "), len(found.causes)) == (sentence, sentence != NOTHING)


def test_a_stage_that_runs_again_adds_what_it_takes_from_its_own_line() -> None:
    def run(ms: float, *lines: int) -> TraceRow:
        return TraceRow("page", "run", "page/sam", tuple(SourceLine("ocr.py", "read", n, f"{n}") for n in lines), 1, ms)

    once, twice = (TraceTable({"page": 1}, rows) for rows in ([run(300, 5, 9)], [run(100, 5, 9), run(90, 4, 9)]))
    assert difference(once, twice).sentence == "sam: +90 ms, 1 more run a page, from ocr.py:4"
    assert difference(twice, once).sentence == "sam: -90 ms, 1 fewer run a page, from ocr.py:4"


def test_longer_times_of_the_same_calls_are_told_where_the_stage_was_judged() -> None:
    a, b = (table(row(10, ms), row(10, gemm_ms, kind=KERNEL, name="gemm")) for ms, gemm_ms in ((1, 2), (3, 3)))
    assert difference(a, b).sentence == NOTHING
    found = difference(a, b, ["decode"])
    assert found.sentence == "decode: +2 ms in aten::cat, slower in as many calls, from cache.py:88"
    [cause] = found.causes
    assert [one.word for one in cause.changes] == ["slower", "slower"]
    assert difference(table(row(10, 1)), table(row(10, 1.4)), ["decode"]).sentence == NOTHING, "a host has other work"


def event(name: str, cat: str, ts: float, dur: float, correlation: int = 0, tid: int = 5) -> dict[str, Any]:
    """Return an event as torch's profiler writes it."""
    where = {"pid": 0 if tid == 7 else 5, "tid": tid, "ts": ts, "dur": dur}
    return {"ph": "X", "name": name, "cat": cat, **where, "args": {"correlation": correlation}}


def test_a_kernel_belongs_to_the_operator_that_launched_it_and_a_synchronise_is_a_wait() -> None:
    """Trace as on a GPU, where a kernel runs on a stream after its stage has ended."""
    lines = Lines(Marks(Own([], ())))
    lines.calls["decode 0", "aten::cat"].append(HERE)
    reading = ProfileReading(
        [
            event("dsocr decode 0", "user_annotation", 10, 30),
            event("aten::cat", "cpu_op", 12, 5),
            event("cudaLaunchKernel", "cuda_runtime", 13, 1, correlation=3),
            event("cudaEventSynchronize", "cuda_runtime", 14, 2, correlation=5),
            event("CatArrayBatchedCopy", "kernel", 45, 20, correlation=3, tid=7),
            event("splitKreduce", "kernel", 64.875, 2.25, correlation=3, tid=7),
            event("cudaStreamSynchronize", "cuda_runtime", 20, 15, correlation=4),
            event("another's", "kernel", 15, 20, correlation=9, tid=7),
        ],
        lines,
    )
    rows = {key[1:3]: (value.path, value.host_ms, value.device_ms) for key, value in reading.rows().items()}
    assert rows == {
        (OPERATOR, "aten::cat"): ((HERE,), 0.005, 0),
        (KERNEL, "CatArrayBatchedCopy"): ((HERE,), 0, 0.02),
        (KERNEL, "splitKreduce"): ((HERE,), 0, 0.00225),  # launched early, as cuBLAS does on an H100
        ("wait", "cudaStreamSynchronize"): ((), 0.015, 0),
        ("wait", "cudaEventSynchronize"): ((HERE,), 0, 0),  # its time is the operator's
    }
    events = reading.trace("A")["traceEvents"]
    check(events)
    assert [one["args"]["name"] for one in events if one["ph"] == "M"] == ["A", "stages", "operators", "kernels"]


def test_a_stages_kernels_are_those_that_it_launched_and_a_page_has_all_of_them_once() -> None:
    runs = [("vision 0", 0, 50), ("sam 0", 1, 10), ("clip 0", 11, 20), ("sam 1", 21, 30), ("prefill 0", 60, 80)]
    runs += [("vision_fusion 0", 61, 65), ("decode 0", 90, 95), ("decode 1", 96, 99)]
    events = [event(BEFORE + run, "user_annotation", start, end - start) for run, start, end in runs]
    launched = ((2, 3), (12, 1), (22, 2), (40, 1), (62, 4), (70, 9), (91, 8), (97, 5), (200, 100), (72, 30))
    for k, (at, took) in enumerate(launched, 1):
        name, kind = ("Memcpy HtoD (Pageable)", "gpu_memcpy") if at == 72 else ("gemm", "kernel")
        events += [event("cudaLaunch", "cuda_runtime", at, 1, k), event(name, kind, 400 + 100 * k, took, k, tid=7)]
    found = {"sam": [3, 2], "clip": [1], "vision_fusion": [1], "prefill": [9, 4], "decode": [5]}
    assert kernels_by_stage(ProfileReading(events, Lines(Marks(Own([], ()))))) == found
