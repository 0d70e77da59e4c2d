"""Describe which slots of the key-value cache differ, in the first layer that does, and which steps have other logits.

Shapes: L layers, S slots, C channels of all heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import measured
from pytest_dsocr.describe.pair import RowPair
from pytest_dsocr.describe.place import confined
from pytest_dsocr.describe.tensors import describe_tensor, of_earlier
from pytest_dsocr.describe.turned import describe_turned
from pytest_dsocr.describe.turned_channels import describe_channels

KeptLayers = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer, ``[S, C]``."""
NOISE = 1e-4
"""Relative error of a slot that is mere rounding in float32: keys of later layers add up that of earlier ones."""
FAR = 0.1
"""Relative error of a slot that is larger than that of numbers in fewer bits."""
BEYOND = "is beyond the tolerance", "are beyond the tolerance"
SIDES = ["keys", "values"]
LEAST_SAME = 4
"""Smallest number of slots that show two layers with the same content."""
CACHE_RIGHT = "the cache has the right keys and values"


def describe_cache(
    kept: KeptLayers, right: KeptLayers, prompt: int, noise: float = NOISE, frequencies: Tensor | None = None
) -> Description | None:
    """Return how the first wrong layer of a cache differs; None if nothing describes it, as for other heads.

    Args:
        kept: the subject's keys and values of each layer, ``[S, C]``.
        right: those of the engine.
        prompt: number of the prompt's tokens.
        noise: relative error that is mere rounding.
        frequencies: those of the rotation of keys.
    """
    if (layer := first_wrong(kept, right, prompt, noise)) < min(len(kept), len(right)):
        wrong = _wrong(kept[layer], right[layer], prompt, noise)
        if (same := next(measured(_same_as, layer, wrong, kept), None)) is not None:
            return same
        if frequencies is not None and [*wrong] == SIDES[:1]:
            keys = wrong[SIDES[0]]
            ways = measured(describe_turned, keys, frequencies, prompt), measured(describe_channels, keys, frequencies)
            for turned in chain(*ways):
                return replace(turned, text=f"in the cache of layer {layer}, {turned.text}; the values are right")
        return next(measured(_of_layer, layer, wrong, prompt), None)
    return Description("cache-right", CACHE_RIGHT, 0.0, len(kept))


def has_far_rows(kept: KeptLayers, right: KeptLayers, prompt: int) -> bool:
    """Return whether some of the prompt's slots are as wrong as those of other tokens."""
    layer = first_wrong(kept, right, prompt, FAR)
    if layer == min(len(kept), len(right)):
        return False
    wrong = _wrong(kept[layer], right[layer], prompt, FAR).values()
    return all(one.actual.shape == one.expected.shape for one in wrong)


def describe_taken(
    kept: KeptLayers, right: KeptLayers, other: KeptLayers, page: str, prompt: int, noise: float = NOISE
) -> Description | None:
    """Describe slots of the first wrong layer that are those of a page which was read before; None if none is.

    ``other`` are the right keys and values of that page.
    """
    if (layer := first_wrong(kept, right, prompt, noise)) >= min(len(kept), len(right), len(other)):
        return None
    wrong = _wrong(kept[layer], right[layer], prompt, noise)
    if any(one.actual.shape != one.expected.shape for one in wrong.values()):
        return None
    there = torch.cat([other[layer][SIDES.index(name)].float().cpu() for name in wrong], -1)[None]
    found = of_earlier(_joined(wrong), there, page)
    if found is None or not found.explains:
        return None
    which = f"{' and '.join(wrong)} of layer {layer}{', the first that differs' * bool(layer)}"
    return replace(found, text=f"in the cache, of the {which}: {found.text}")


def first_wrong(kept: KeptLayers, right: KeptLayers, prompt: int, noise: float = NOISE) -> int:
    """Return the first layer with wrong keys or values; the number of layers if there is none."""
    pairs = enumerate(zip(kept, right, strict=False))
    return next((layer for layer, pair in pairs if _wrong(*pair, prompt, noise)), min(len(kept), len(right)))


def _wrong(own: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], prompt: int, noise: float) -> dict[str, RowPair]:
    """Return the wrong ones of a layer's keys and values."""
    sides = zip(SIDES, own, right, strict=True)
    pairs = {name: _pair(actual, expected, prompt, noise) for name, actual, expected in sides}
    return {name: one for name, one in pairs.items() if one.actual.shape != one.expected.shape or _differs(one)}


def _joined(wrong: Mapping[str, RowPair]) -> RowPair:
    """Return a layer's wrong keys and values as one pair, side by side."""
    first, *more = wrong.values()
    sides = ([getattr(one, side) for one in (first, *more)] for side in ("actual", "expected"))
    actual, expected = (torch.cat(side, -1) for side in sides)
    return replace(first, actual=actual, expected=expected)


def _same_as(layer: int, wrong: Mapping[str, RowPair], kept: KeptLayers) -> Description | None:
    """Describe a layer whose wrong keys and values are those that the subject has in another layer."""
    if any(pair.actual.shape != pair.expected.shape for pair in wrong.values()):
        return None
    differs = torch.stack([pair.not_equal[0] for pair in wrong.values()]).any(0)
    for other, there in enumerate(kept):
        sides = [(pair.actual[0], there[SIDES.index(name)].float().cpu()) for name, pair in wrong.items()]
        if other == layer or any(own.shape != side.shape for own, side in sides):
            continue
        same = torch.stack([(own == side).all(-1) & own.any(-1) for own, side in sides]).all(0)
        if same.sum() >= LEAST_SAME and same.equal(differs):
            which = "all" if same.all() else f"{int(same.sum()):,} of"
            text = f"layer {layer} has the {' and '.join(wrong)} of layer {other} in {which} {len(same):,} slots"
            return Description("same-layer", f"in the cache, {text}", 1.0, int(same.sum()))
    return None


def _of_layer(layer: int, wrong: Mapping[str, RowPair], prompt: int) -> Description | None:
    """Describe the first wrong layer, or say that the one before it is wrong in steps."""
    whole = _joined(wrong)
    found = describe_tensor(whole)
    is_how, is_place = found is not None and found.says_how, found is not None and found.explains
    has_both = len(wrong) == len(SIDES) and whole.actual.shape == whole.expected.shape
    if layer and has_both and not is_how and not whole.not_equal[:, :prompt].any():
        count, every = int(whole.not_equal.sum()), whole.not_equal.numel() - prompt
        which = "all" if count == every else f"{count:,} of"
        before = f"layer {layer - 1} computes another output: its keys and values in the cache are right, and"
        text = f"in steps, {before} those of layer {layer} are wrong, in {which} {every:,} slots of steps"
        return Description("steps", text, 1.0, count)
    if found is None or not is_place:
        return None
    which = f"{' and '.join(wrong)} of layer {layer}{', the first that differs' * bool(layer)}"
    return replace(found, kind="cache", text=f"in the cache, of the {which}: {found.text}")


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
