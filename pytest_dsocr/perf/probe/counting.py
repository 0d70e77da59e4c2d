"""Quantities that noise does not touch: tokens, operators, waits, bytes; on a GPU kernels and allocations as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_dsocr.perf.probe.gpu_work import of_gpu
from pytest_dsocr.perf.probe.lines import growth, growth_by_length, growth_by_token
from pytest_dsocr.perf.probe.operators import Counting, Operators
from pytest_dsocr.perf.probe.stopwatch import Stopwatch
from pytest_dsocr.perf.probe.walk import FIRST_LAYER, MODULES, module_of

if TYPE_CHECKING:
    from pytest_dsocr.perf.probe.page import PageProbe


def count(probe: PageProbe) -> dict[str, int]:
    """Count one page of ``probe``: its whole reading, and its stages where the subject has them."""
    found = _of_reading(probe)
    if probe.has_stages:
        found |= _of_stages(probe)
    if (grown := _lines_growth(probe, found)) is not None:
        found["page.lines.growth"] = grown
    if probe.has_stages and probe.device.startswith("cuda"):
        found |= of_gpu(probe)
    return found


def _lines_growth(probe: PageProbe, found: Mapping[str, int]) -> int | None:
    first_layer = module_of(probe.subject, FIRST_LAYER)
    if first_layer is not None:
        return growth_by_token(probe.read, first_layer)
    return growth_by_length(probe.read, found.get("tokens.output", probe.max_new_tokens))


def _of_reading(probe: PageProbe) -> dict[str, int]:
    with _views(probe.subject) as views, Counting() as counting:
        text = probe.read()
    seen = counting.seen
    found = {"page.characters": len(text), "page.operators": seen.count, "page.waits": seen.synchronisations}
    if views is not None:
        found["page.views"] = sum(views)
    return found


def _of_stages(probe: PageProbe) -> dict[str, int]:
    walk = probe.walk(Stopwatch("cpu"))
    with _views(probe.subject) as once, Counting() as counting:
        inputs, state = walk.begin()
    begun = counting.seen
    steps: list[Operators] = []

    @contextmanager
    def counted() -> Iterator[None]:
        with Counting() as one:
            yield
        steps.append(one.seen)

    with _views(probe.subject) as views:
        walk.decode(state, counted)
    with Counting() as first:
        probe.read(1)
    mask = inputs.get("images_seq_mask")
    found = {
        "tokens.output": len(walk.tokens),
        "tokens.prompt": int(inputs["input_ids"].shape[-1]),
        **({} if mask is None else {"tokens.image": int(mask.sum())}),
        "first_token.operators": begun.count,
        "first_token.waits": begun.synchronisations,
        "page.waits.first": first.seen.synchronisations,
        **_of_steps(steps),
        **({} if once is None or views is None else {"vision.views": sum(once), "decode.views": sum(views)}),
    }
    if (bytes_of_token := _cache_bytes(state)) is not None:
        found["cache.bytes_a_token"] = bytes_of_token
    return found


def _of_steps(steps: list[Operators]) -> dict[str, int]:
    """Give the counts of the last step, and how much they grow a token; the first step may prepare, and is left out."""
    if len(steps) < 3:
        return {}
    last, alike = steps[-1], steps[1:]
    return {
        "decode.operators": last.count,
        "decode.operators.growth": growth([one.count for one in alike]),
        "decode.waits": last.synchronisations,
        "decode.convolutions": last.convolutions,
        "decode.bytes": last.new_bytes,
        "decode.bytes.growth": growth([one.new_bytes for one in alike]),
    }


def _cache_bytes(state: Any) -> int | None:
    """Give the cache's bytes a position, where the state shows it."""
    cache = getattr(state, "cache", None)
    try:
        held = [side(layer) for layer in range(cache.layers) for side in (cache.keys, cache.values)]  # type: ignore[union-attr]
        total: int = sum(one.numel() * one.element_size() // one.shape[-2] for one in held)
        return total
    except (AttributeError, TypeError, ZeroDivisionError, NotImplementedError):
        return None


@contextmanager
def _views(subject: Any) -> Iterator[list[int] | None]:
    """Note how many views each call of SAM encodes; None where the subject does not show it as a module."""
    module = module_of(subject, MODULES["sam"])
    if module is None:
        yield None
        return
    views: list[int] = []
    hook = module.register_forward_pre_hook(lambda _, args: views.append(len(args[0])))
    try:
        yield views
    finally:
        hook.remove()
