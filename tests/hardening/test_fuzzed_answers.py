"""Whatever a subject hands over, in whichever place: verdicts or a fault of the subject's come of it, nothing else."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.kv_probe import KvProbe

METHODS = ("read", "inputs", "vision", "prefill", "step", "text_of", "write", "state.logits")
PARTS = ("keys", "values", "layers", "cache")
DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool)
LAYOUTS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda tensor: tensor,
    lambda tensor: tensor.to("meta"),
    lambda tensor: tensor.float().to_sparse(),
    lambda tensor: tensor.float().requires_grad_(),
    lambda tensor: torch.full_like(tensor.float(), torch.nan),
    lambda tensor: tensor[None].expand(3, *tensor.shape),
)


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        if name == "_repr_pretty_":  # by which hypothesis would show it
            raise AttributeError(name)
        raise ZeroDivisionError(name)

    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


SHAPES = st.lists(st.integers(0, 5), max_size=5)
TENSORS = st.builds(
    lambda shape, dtype, lay_out: lay_out(torch.ones(shape).to(dtype)),
    SHAPES,
    st.sampled_from(DTYPES),
    st.sampled_from(LAYOUTS),
)
ODD = st.one_of(
    st.sampled_from([None, -1, 10**9, float("nan"), "", "\ud800", b"x", object, Hostile(), ...]),
    st.text(max_size=9),
    TENSORS,
    st.builds(lambda shape: np.ones(shape), SHAPES),
    st.builds(lambda count: (one for one in range(count)), st.integers(0, 3)),
    st.lists(TENSORS, max_size=2),
)


FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def changed(given: Any, value: Any, at: int | None) -> Any:
    """Return another value in the place of the whole, or at one name of a mapping."""
    if at is None or not isinstance(given, dict) or not given:
        return value
    return {**given, [*given][at % len(given)]: value}


@pytest.mark.dsocr_slow
@FEW
@given(st.sampled_from(METHODS), ODD, st.none() | st.integers(0, 9))
def test_a_method_may_give_anything(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, place: str, value: Any, at: int | None
) -> None:
    subject = EngineSubject(tiny)
    names = ("read", "inputs", "vision", "prefill", "step", "text_of", "write", "seams")
    odd = SimpleNamespace(**{name: getattr(subject, name) for name in names})
    if place == "state.logits":
        odd.prefill = lambda *given: SimpleNamespace(logits=value, cache=subject.prefill(*given).cache)
    else:
        method = getattr(subject, place)
        setattr(odd, place, lambda *given, **how: changed(method(*given, **how), value, at))
    answer = run_teacher_forced(odd, case, expected, always_read=True)
    assert answer.fault is None or (answer.lost and type(answer.fault) is SubjectFaultError)
    [*compare_observations(answer, expected, tolerances("float32"))]


@FEW
@given(st.sampled_from(PARTS), ODD)
def test_a_cache_may_be_anything(place: str, odd: Any) -> None:
    good = torch.ones(1, 2, 3, 4)
    parts = {"keys": lambda layer: good, "values": lambda layer: good, "layers": 2}
    if place != "cache":
        parts[place] = odd if place == "layers" else lambda layer: odd
    state: Any = SimpleNamespace(cache=odd if place == "cache" else SimpleNamespace(**parts))
    try:
        probe = KvProbe(state)
        assert probe.size.layers == len(probe.lengths) == len(probe.digest().hashes)
        assert probe.itemsize > 0
    except SubjectFaultError as fault:
        message = str(fault)
    else:
        return
    assert "the subject's cache" in message


def test_a_cache_of_other_shapes_is_named() -> None:
    keys = torch.ones(2, 3, 4)
    state: Any = SimpleNamespace(cache=SimpleNamespace(layers=1, keys=lambda _: keys, values=lambda _: keys))
    with pytest.raises(SubjectFaultError, match=r"cache\.keys\(0\) gave a tensor of shape \[2, 3, 4\]; give \[B, G"):
        _ = KvProbe(state).lengths
