"""What watching adds to a decode step, on both sides: the time of watched steps over that of bare ones, in turn.

Run by hand, from the checkout: pytest tests/bench_watching.py --benchmark-json=watching.json

``DSOCR_CHECKPOINT``, ``DSOCR_DEVICE`` and ``DSOCR_DTYPE`` name another checkpoint, device and dtype than ``mini``,
``cpu`` and ``float32``. The vendor's side needs its files, in ``DSOCR_VENDOR``, and an environment in which they run,
as tox -e vendor has it. Times are those of the CPU; on a GPU they are on the wall, the device waited for.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.engine.session import ENGINES, Engine, Session
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Best, Step
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import forced_steps
from pytest_dsocr.subjects.session import SessionSubject

ROUNDS, TOKENS = 5, 128
AT_ONCE = 16
"""Steps of one kind, so that a GPU is waited for once for all of them."""
CHECKPOINT = os.environ.get("DSOCR_CHECKPOINT", "mini")
HOW: dict[str, Any] = {
    "device": os.environ.get("DSOCR_DEVICE", "cpu"),
    "dtype": os.environ.get("DSOCR_DTYPE", "float32"),
}


def now_s() -> float:
    if HOW["device"] == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def case() -> Case:
    return make_case(shipped("dev-3")[0], DEFAULT.prompts["markdown"], "gundam", TOKENS)


@pytest.mark.parametrize("engine", ENGINES)
def test_session(benchmark: Any, engine: Engine) -> None:
    """Along a page's own tokens, two states of one session: so many bare steps, so many watched ones, and so on."""
    session = Session.from_checkpoint(CHECKPOINT, **HOW, engine=engine)
    ratios: list[float] = []

    def page() -> None:
        bare_s, watched_s = in_turn(session)
        ratios.append(watched_s / bare_s)
        benchmark.extra_info |= {"bare_ms": 1e3 * bare_s, "watched_ms": 1e3 * watched_s}

    with torch.no_grad(), watching([]) as watch:
        watch.limit(3600)
        benchmark.pedantic(page, rounds=ROUNDS)
    tell(benchmark, engine, ratios)


def in_turn(session: Session[Any]) -> tuple[float, float]:
    """Give the seconds of a bare step and of a watched one."""
    subject, asked = SessionSubject(session), CheckedSubject(SessionSubject(session))
    inputs = asked.inputs(case())
    features = asked.vision(inputs)["vision_fusion"]
    tokens = session.run(case().page, prompt=case().prompt, preset=case().preset, max_new_tokens=TOKENS).token_ids
    theirs = [Step(token, Best((token, 5, 6, 7, 8), (5.0, 4.0, 3.0, 2.0, 1.0))) for token in tokens]
    state, (watched, logits) = subject.prefill(inputs, features), asked.prefill(inputs, features)
    steps, taken_s = forced_steps(asked, inputs, theirs), {"bare": 0.0, "watched": 0.0}
    steps.see(logits)

    def bare_step(token: int) -> None:
        subject.step(state, token)

    def watched_step(token: int) -> None:
        steps.see(asked.step(watched, token))

    both = [("bare", bare_step), ("watched", watched_step)]
    for start in range(0, len(tokens) - 1, AT_ONCE):
        for name, step in both:
            started_s = now_s()
            for token in tokens[start : min(start + AT_ONCE, len(tokens) - 1)]:
                step(token)
            taken_s[name] += now_s() - started_s
        both.reverse()
    started_s = now_s()
    assert len(steps.fetch()) == len(tokens)
    taken_s["watched"] += now_s() - started_s
    return taken_s["bare"] / (len(tokens) - 1), taken_s["watched"] / (len(tokens) - 1)


def test_vendor(benchmark: Any) -> None:
    """The vendor's ``infer`` as it is, and as the worker watches it, page by page in turn."""
    if not os.environ.get("DSOCR_VENDOR"):
        pytest.skip("needs the vendor's Python files; name their folder in DSOCR_VENDOR")
    from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime

    runtime = VendorRuntime.load(Path(os.environ["DSOCR_VENDOR"]), CHECKPOINT, **HOW)
    ratios: list[float] = []

    def page() -> None:
        bare_s, watched_s = (step_s(runtime, is_watched) for is_watched in (False, True))
        ratios.append(watched_s / bare_s)
        benchmark.extra_info |= {"bare_ms": 1e3 * bare_s, "watched_ms": 1e3 * watched_s}

    benchmark.pedantic(page, rounds=ROUNDS)
    tell(benchmark, "vendor", ratios)


def step_s(runtime: Any, is_watched: bool) -> float:
    """Give the seconds of a decode step, from the beginning of one to that of the next."""
    with tempfile.TemporaryDirectory() as folder, begun(runtime.model) as at_s:
        if is_watched:
            runtime._run(case(), Path(folder), save_results=True)
        else:
            infer(runtime, Path(folder))
    return (at_s[-1] - at_s[1]) / (len(at_s) - 2)


@contextlib.contextmanager
def begun(model: Any) -> Iterator[list[float]]:
    """Note when each forward of the whole model begins, in seconds."""
    forward, at_s = model.forward, list[float]()

    @functools.wraps(forward)
    def noted(*given: Any, **named: Any) -> Any:
        at_s.append(now_s())
        return forward(*given, **named)

    model.forward = noted
    try:
        yield at_s
    finally:
        del model.forward


def infer(runtime: Any, folder: Path) -> None:
    """Run ``infer`` with the ceiling of :data:`TOKENS` and this vocabulary's image token, and nothing else changed."""
    from pytest_dsocr.reference.vendor_code.code import vendor_on_cpu
    from pytest_dsocr.reference.vendor_code.observe import VENDOR_IMAGE_ID

    model, asked = runtime.model, case()
    generate = model.generate

    def ceiled(ids: Any, **named: Any) -> Any:
        ids = ids.masked_fill(ids == VENDOR_IMAGE_ID, runtime.image_id)
        return generate(ids, **{**named, "max_new_tokens": TOKENS})

    model.generate = ceiled
    try:
        on_cpu = vendor_on_cpu(model) if HOW["device"] == "cpu" else contextlib.nullcontext()
        with on_cpu, contextlib.redirect_stdout(io.StringIO()):
            sizes = {"base_size": asked.preset.base_size, "image_size": asked.preset.image_size}
            page = {"prompt": asked.prompt, "image_file": str(asked.page), "output_path": str(folder)}
            model.infer(runtime.tokenizer, **page, **sizes, crop_mode=asked.preset.crop, save_results=True)
    finally:
        del model.generate


def tell(benchmark: Any, side: str, ratios: list[float]) -> None:
    """Put the median ratio into the benchmark's JSON, and print it."""
    benchmark.extra_info["watched_over_bare"] = statistics.median(ratios)
    told = " ".join(f"{ratio:.3f}" for ratio in sorted(ratios))
    print(f"\n{side}: watched over bare {statistics.median(ratios):.3f} ({told})")  # noqa: T201
