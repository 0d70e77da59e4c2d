"""Describe which slots of the key-value cache differ, in the first layer that does, and which steps have other logits.

Shapes: L layers, S slots, C channels of all heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.pair import RowPair
from pytest_dsocr.describe.place import confined
from pytest_dsocr.describe.tensors import describe_tensor

NOISE = 1e-4
"""Relative error of a slot that is mere rounding in float32: keys of later layers add up that of earlier ones."""
BEYOND = "is beyond the tolerance", "are beyond the tolerance"
CACHE_RIGHT = "the cache has the right keys and values"


def describe_cache(
    kept: Sequence[tuple[Tensor, Tensor]], right: Sequence[tuple[Tensor, Tensor]], prompt: int, noise: float = NOISE
) -> Description | None:
    """Return how the first wrong layer of a cache differs; None if nothing describes it, as for rotated keys.

    Args:
        kept: the subject's keys and values of each layer, ``[S, C]``.
        right: those of the engine.
        prompt: number of the prompt's tokens.
        noise: relative error that is mere rounding.
    """
    for layer, (own, other) in enumerate(zip(kept, right, strict=False)):
        sides = zip(("keys", "values"), own, other, strict=True)
        pairs = {name: _pair(actual, expected, prompt, noise) for name, actual, expected in sides}
        wrong = {name: one for name, one in pairs.items() if one.actual.shape != one.expected.shape or _differs(one)}
        if not wrong:
            continue
        first, *more = wrong.values()
        actual = torch.cat([first.actual, *(one.actual for one in more)], -1)
        expected = torch.cat([first.expected, *(one.expected for one in more)], -1)
        whole = replace(first, actual=actual, expected=expected)
        found = describe_tensor(whole)
        if found is None or not found.explains:
            return None
        which = f"{' and '.join(wrong)} of layer {layer}{', the first that differs' * bool(layer)}"
        return replace(found, kind="cache", text=f"in the cache, of the {which}: {found.text}")
    return Description("cache-right", CACHE_RIGHT, 0.0, len(kept))


def rows_of(part: Tensor) -> Tensor:
    """Return the keys or values of a cache's first row ``[B, G, S, D]`` as ``[S, C]``."""
    return part[0].transpose(0, 1).flatten(1)


def _pair(actual: Tensor, expected: Tensor, prompt: int, noise: float) -> RowPair:
    of_prompt = torch.arange(len(expected)) < prompt
    places = {"the prompt's slots": of_prompt, "the steps' slots": ~of_prompt} if len(expected) > prompt else {}
    return RowPair(actual.float()[None].cpu(), expected.float()[None].cpu(), "slot", places=places, noise=noise)


def _differs(pair: RowPair) -> bool:
    return bool((pair.apart.norm(dim=-1) > pair.noise * pair.expected.norm(dim=-1)).any())


def describe_steps(errors: Sequence[float], allowed: float, is_cache_right: bool) -> Description | None:
    """Return which steps have other logits, if they are some or the cache is known to be right.

    Args:
        errors: relative error of each step's logits.
        allowed: the largest one that passes.
        is_cache_right: whether the steps read right keys and values.
    """
    wrong = torch.tensor([float(not one <= allowed) for one in errors])[None, :, None]
    found = confined(RowPair(wrong, torch.zeros_like(wrong), "step"), BEYOND)
    if found is None and not is_cache_right:
        return None
    some = f"{int(wrong.sum())} of {len(errors)} steps {BEYOND[1]}, from step {int(wrong.argmax(1))} on"
    text = found.text if found else some
    more = f"{CACHE_RIGHT}, and a step computes other logits from them: " * is_cache_right
    return Description("steps", f"{more}{text}", 1.0, len(errors))
