"""Needless work is named by its own sign, and by no other; and what differs between two measurements."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.timing.counts import FLAGS, exact_changes, flag, flags, too_few_tokens
from pytest_dsocr.timing.probe.page import PageProbe
from pytest_dsocr.timing.probe.stopwatch import Stopwatch, growth
from pytest_dsocr.timing.rounds import FEW, LATE, PAGE
from suites.contract.asked import own_preset
from tests.timing import planted

SMALL = own_preset("small view", 128, 128, crop=False)
TOKENS = 24
"""The fewest show what grows: eight at each end, and some between."""

Probe = Callable[..., PageProbe]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (64, 48), "white").save(path)
    return path


@pytest.fixture
def probe(tiny: Engine[Any], page: Path) -> Probe:
    def make(subject: Callable[[Engine[Any]], EngineSubject], tokens: int = TOKENS) -> PageProbe:
        return PageProbe(subject(tiny), page, prompt="<image>\nFree OCR.", preset=SMALL, max_new_tokens=tokens)

    return make


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("subject", "name", "figures"),
    [
        (planted.VisionInDecode, "vision in decode, short prefill", "5 convolutions"),  # beside such a step
        (planted.VisionTwice, "vision runs again", "2 views, and it has 1"),
        (planted.VisionLeftOut, "vision left out", "0 views, and it has 1"),
        (planted.PrefillKept, "short prefill", "takes 0 (us"),
        (planted.WaitsInStep, "waits in a step", "1 times by itself"),
        (planted.WaitsInRead, "waits a token", "1.92 times a token"),
        (planted.CacheConcatenated, "cache copied", "1,632 bytes more"),
        (planted.QuadraticNgrams, "host work grows", "27 lines of Python more"),
        (EngineSubject, "", ""),
    ],
)
def test_a_planted_cost_raises_its_own_flag_alone(
    probe: Probe, subject: type[EngineSubject], name: str, figures: str
) -> None:
    found = flags(probe(subject).exact())
    assert [*found] == [*FLAGS], "all of them are evaluated"
    raised = {one: flag.measured for one, flag in found.items() if flag.raised}
    assert ", ".join(raised) == name
    assert all(figures in measured for measured in [*raised.values()][:1])


NO_VIEW = {"vision.views": 0, "page.views": 0}
THRESHOLDS: dict[str, tuple[dict[str, int], str]] = {
    "vision in decode": ({"decode.convolutions": 0}, "decode.convolutions"),
    "vision runs again": ({"vision.views": 7, "page.views": 7}, "page.views"),
    "vision left out": (dict(NO_VIEW, **{"page.operators": 9, "first_token.operators": 9}), "vision.views"),
    "short prefill": ({"prefill.busy_us": 201, "decode.busy_us": 100}, "decode.busy_us"),
    "waits in a step": ({"decode.waits": 0}, "decode.waits"),
    "waits a token": ({"page.waits": 14, "page.waits.first": 4, "tokens.output": 10}, "page.waits"),
    "cache copied": ({"decode.bytes.growth": 99, "cache.bytes_a_token": 100}, "decode.bytes.growth"),
    "operators grow": ({"decode.operators.growth": 0, "decode.operators": 9}, "decode.operators.growth"),
    "host work grows": ({"page.lines.growth": 0}, "page.lines.growth"),
}
"""By flag, what is allowed to the last, and of what one more is not."""


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_raised_above_its_limit_and_needs_all_of_its_quantities(name: str) -> None:
    allowed, quantity = THRESHOLDS[name]
    for by, raised in ((-3, False), (0, False), (1, True)):
        exact = {**allowed, quantity: allowed[quantity] + by}
        found = flag(name, exact)
        assert found is not None
        assert found.raised is raised
    for missing in FLAGS[name][0]:
        assert flag(name, {one: value for one, value in allowed.items() if one != missing}) is None


@pytest.mark.parametrize(("values", "grown"), [([5, 8], 3), ([*range(0, 60, 3)], 3), ([7] * 20 + [5000], 0)])
def test_growth_is_a_tokens_and_one_that_stands_out_is_none(values: list[int], grown: int) -> None:
    assert growth(values) == grown


@pytest.mark.parametrize(
    ("name", "before", "after", "differs"),
    [
        ("sam.busy_us", 18_000, 18_500, False),
        ("sam.busy_us", 18_000, 18_600, True),
        ("projector.busy_us", 18, 45, False),
        ("page.peak_bytes", 7_000_000_000, 7_050_000_000, False),
        ("page.peak_bytes", 7_000_000_000, 7_100_000_000, True),
        ("sam.kernels", 1140, 1141, True),
    ],
)
def test_what_is_measured_may_differ_a_little(name: str, before: int, after: int, differs: bool) -> None:
    found = exact_changes({name: before}, {name: after})
    assert [(one.quantity, one.is_worse) for one in found] == [(name, True)] * differs


@pytest.mark.parametrize(("tokens", "fewest"), [(1, 2), (3, 4), (16, 17), (17, 18), (18, 0)])
def test_what_takes_more_tokens_than_the_page_has_is_said(probe: Probe, tokens: int, fewest: int) -> None:
    made = probe(EngineSubject, tokens)
    exact, timed = made.exact(), made.round()["wall_ms"]
    lacking = {name for name in ("decode", "decode.early", "decode.late") if name not in timed}
    lacking |= {one for name in FLAGS if flag(name, exact) is None for one in FLAGS[name][0] if one not in exact}
    said = {name: too_few_tokens((name,), exact) for name in ("decode", "decode.late", *lacking, *exact)}
    assert lacking <= {name for name, why in said.items() if why}
    there = (exact.keys() | timed.keys()) - {"decode.views"}
    assert not [name for name in there if said.get(name)], "what is there is enough"
    assert (f"too few tokens ({tokens}, needs {fewest})" in said.values()) is bool(fewest)


AGAIN: dict[tuple[str, ...], list[str]] = {
    (): ["inputs", "vision", "prefill", "step", "text_of", "read"],
    ("decode",): ["prefill", "step"],
    ("tokenizer", "page"): ["inputs", "read"],
    ("sam", "postprocess"): ["vision", "text_of"],
    ("first_token",): ["inputs", "vision", "prefill"],
    ("page",): ["read"],
}
"""The methods of the subject that a round of these quantities calls."""


def test_a_round_does_again_what_its_quantities_need_and_no_more(monkeypatch: pytest.MonkeyPatch, probe: Probe) -> None:
    made, seen, texts = probe(EngineSubject), list[str](), set[Any]()
    monkeypatch.setattr("pytest_dsocr.timing.probe.machine.WAITED_SHARE", 1e9)
    whole = made.round()["wall_ms"]

    def noted(name: str, call: Callable[..., Any], *given: Any, **how: Any) -> Any:
        seen.append(name)
        texts.update([call(*given, **how)] if name == "text_of" else [])
        return call(*given, **how)

    for name in ("inputs", "vision", "prefill", "step", "text_of", "read"):
        monkeypatch.setattr(made.subject, name, partial(noted, name, getattr(made.subject, name)))
    for only, asked in AGAIN.items():
        seen.clear()
        assert [*made.round(only)["wall_ms"]] == [name for name in whole if not only or name in only]
        assert list(dict.fromkeys(seen)) == asked
    assert len(texts) == 1, "what is taken from an earlier walk is what that gave"


def test_a_side_that_goes_apart_is_driven_along_the_other_s_tokens(probe: Probe) -> None:
    a, b = probe(EngineSubject, 4), probe(planted.OtherTokens, 4)
    tokens = a.work()["tokens"]
    assert b.work()["tokens"] != tokens
    b.drive(tokens[:3], is_page_along=True)
    assert b.work()["tokens"] == tokens[:3]
    b.subject.read = None  # a page is read by its stages
    assert [*b.round([PAGE])["wall_ms"]] == [PAGE]


def test_the_first_steps_are_enough_where_late_ones_are_not_asked_for(probe: Probe) -> None:
    made = probe(EngineSubject, 2 * FEW + 4)
    assert len(made.work()["tokens"]) == 2 * FEW + 4
    for only, steps in ((["decode"], 2 * FEW), (["decode", LATE], 2 * FEW + 3)):
        walk = made.walk(Stopwatch("cpu"), only)
        walk.whole()
        assert len(walk.watch.laps["decode"]) == steps
    assert len(made.left.tokens) == 2 * FEW + 4, "the text is made of the longest walk"


COMPILED = """
import sys
import torch
from pytest_dsocr.timing.probe.counting import Counting

with Counting() as counting:
    torch.ones(3) + 1
print(counting.operators, "torch._dynamo" in sys.modules)
double = torch.compile(lambda x: x * 2 + 1, backend="eager")
with Counting() as counting:
    double(torch.ones(3))
print(counting.operators)
"""


def test_operators_are_counted_without_the_compiler_and_of_what_it_compiled() -> None:
    """Importing torch's compiler takes 4 s, and a subject that compiles has done it."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False", "3"]
