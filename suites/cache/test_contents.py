"""Contents of the cache: its number of positions, the positions that a step overwrites, and its memory.

Each layer holds the prompt's positions and one more for each step. If the model keeps a ring, a full ring stops
growing. A step overwrites its oldest position only, or drops it and moves the later ones forward. A token takes
exactly the computed bytes, and decode needs no more memory than prefill.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Comparison, Reason, as_expected, not_compared
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.records.config import Config
from pytest_dsocr.subjects.kv_probe import KINDS, KvDigest, KvProbe
from pytest_dsocr.subjects.protocol import DecodeView

from .walk import Peak, Walk, compare_lengths, compare_peaks
from .ways import Ways

pytestmark = pytest.mark.dsocr_level("L2")

Probe = Callable[[DecodeView], KvProbe]


def test_it_grows_by_one_in_every_layer_a_step(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    state, _ = walk.start()
    found = compare_lengths(dsocr_kv(state), walk.prompt_tokens, "after prefill", "the tokens of the prompt")
    lengths = list[int]()
    for step, token in enumerate(walk.tokens, 1):
        walk.steps(state, [token])
        held = walk.held(step)
        why = f"{walk.prompt_tokens} of the prompt and {held - walk.prompt_tokens} of steps"
        found += compare_lengths(dsocr_kv(state), held, f"after step {step}", why)
        lengths.append(state.cache.length)
    check = walk.family.cache.ring and _kept(walk, lengths)
    dsocr_check(replace(one, details=(f"check: {check}",)) if check and not one.passes else one for one in found)


def _kept(walk: Walk, lengths: Sequence[int]) -> str:
    """Name the wrong cache that has these lengths, if the model keeps a ring; empty if none is known."""
    prompt, ring, most, steps = walk.prompt_tokens, walk.family.cache.ring, lengths[-1], range(1, len(lengths) + 1)
    if [*lengths] == [prompt + step for step in steps]:
        return f"whether it is full attention instead of a ring of {ring}"
    if [*lengths] == [min(prompt + step, most) for step in steps]:
        return f"whether it is a ring of {most - prompt} tokens instead of {ring}"
    return f"whether a window of {most} positions drops the prompt" if max(lengths) <= prompt else ""


def test_earlier_positions_stay_as_they_are(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    state, _ = walk.start()
    before = dsocr_kv(state).digest()
    found: list[Comparison] = []
    for step, token in enumerate(walk.tokens, 1):
        walk.steps(state, [token])
        after = dsocr_kv(state).digest()
        found.append(_unchanged(before, after, step, walk.over(step), walk.prompt_tokens))
        before = after
    dsocr_check(found)


def test_a_step_sees_what_is_kept(walk: Walk, ways: Ways, dsocr_check: Check) -> None:
    """Change one position of the last layer's values before each step, and look for the change in the logits.

    A position that the step overwrites must not show. The test is not offered by a subject that returns copies of its
    cache.
    """
    import torch

    plain, state = walk.steps(walk.start()[0], walk.tokens), walk.start()[0]
    found, is_shown, slides, first = list[Comparison](), False, False, walk.prompt_tokens
    for step, token in enumerate(walk.tokens, 1):
        over, last = walk.over(step), walk.held(step - 1) - 1
        over = over and ([first] if slides else over)
        at = (0, first - 1, *(over or [last]), last)[step % 4]
        values = state.cache.values(state.cache.layers - 1)
        place = (slice(None), slice(None), min(at, values.shape[2] - 1))
        before = values[place].clone()
        values[place] += torch.finfo(values.dtype).max ** 0.75  # visible even at a small attention weight
        kept = torch.cat([values[:, :, :first], values[:, :, first + 1 :]], dim=2)
        seen = ways.is_seen(walk.steps(state, [token])[0], plain[step - 1])
        is_shown = is_shown or seen
        later = state.cache.values(state.cache.layers - 1)
        slides = over == [first] and later[:, :, :-1].equal(kept)
        if at not in over:
            later[*place[:2], place[2] - (slides and at > first)] = before
        why = "as the step overwrites it" if at in over else f"as it is one of {walk.held(step)} kept positions"
        what = f"cache/position {at} in step {step}"
        found.append(as_expected(what, "seen" if seen else "not seen", "not seen" if at in over else "seen", why))
    dsocr_check(found if is_shown else [not_compared("cache/what is seen", Reason.NOT_OFFERED)])


def test_another_token_is_another_content(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    """Compare the caches of two prompts that differ in their last token: that position must differ."""
    one, other = (dsocr_kv(walk.start([token])[0]).digest() for token in (0, 1))
    differing = sum(place.position == walk.prompt_tokens for place in one.changed(other))
    expected = len(KINDS) * max(len(one.hashes), 1)
    dsocr_check([as_expected("cache/contents of a token", differing, expected, "keys and values in all layers")])


def _unchanged(before: KvDigest, after: KvDigest, step: int, over: list[int], prompt: int) -> Comparison:
    """Compare the earlier positions that a step changed with the ones that it must overwrite."""
    what = f"cache/contents at step {step}"
    if not any(kind for layer in before.hashes for kind in layer):
        measured = "the cache shows no earlier positions; check its layers, keys and values"
        return not_compared(what, Reason.NOT_GIVEN, measured)
    changed = before.changed(after)
    others = [place for place in changed if place.position not in over]
    whole = len(KINDS) * len(before.hashes) * len(over)
    expected = f"position {over[0]} in every layer" if over else "none changed"
    where = f"{len(changed)} changed, first {(others or changed)[0]}" if changed else "none changed"
    is_right = not others and len(changed) == whole
    where = expected if is_right or (over and before.slid(after, prompt)) else where
    found = as_expected(what, where, expected, f"among positions before step {step} in {len(after.hashes)} layers")
    eaten = bool(over) and any(place.position < prompt for place in others)
    return replace(found, details=("check: whether it is a plain window, which drops the prompt",)) if eaten else found


def test_a_token_takes_the_computed_bytes(
    walk: Walk, dsocr_subject: Any, dsocr_config: Config, dsocr_kv: Probe, dsocr_check: Check
) -> None:
    """Compare the bytes of a token with the computed ones; numbers may be narrower than the subject's dtype."""
    import torch

    from pytest_dsocr.engine.checkpoint import resolve

    decoder = resolve(dsocr_config.checkpoint).architecture.decoder
    probe = dsocr_kv(walk.start()[0])
    dtype = str(getattr(dsocr_subject, "dtype", dsocr_config.dtype))
    itemsize = min(probe.itemsize, getattr(torch, dtype).itemsize)
    factors = (decoder.num_hidden_layers, decoder.num_key_value_heads, decoder.head_dim, itemsize)
    expected = 2 * math.prod(factors)
    why = f"2 x {' x '.join(map(str, factors))}: layers, heads, channels of a head, bytes of a number in {dtype}"
    found = [as_expected("cache/bytes a token", probe.bytes_per_token, expected, why)]
    if (said := getattr(probe.state.cache, "bytes_per_token", None)) is not None:
        found.append(as_expected("cache/bytes a token, as it says", said, expected, "the computed bytes"))
    dsocr_check(found)


@pytest.mark.dsocr_gpu
def test_decode_peaks_no_higher_than_prefill(
    request: pytest.FixtureRequest, dsocr_subject: Any, first_page: Path, dsocr_config: Config, dsocr_check: Check
) -> None:
    """Compare the peak of torch's memory on the GPU in the steps with the peak in vision and prefill."""
    device = dsocr_config.device
    if not device.startswith("cuda"):
        leave_out(request.node, "gpu", f"the subject is on {device}; pass --dsocr-device=cuda")
    if dsocr_config.isolate:
        leave_out(request.node, "gpu", "the subject runs in another process; run this without --dsocr-isolate")
    walk = Walk.along(dsocr_subject, first_page, dsocr_config.presets[0], family=family_named(dsocr_config.checkpoint))
    inputs = walk.copies()

    def begin() -> DecodeView:
        return walk.subject.prefill(inputs, walk.subject.vision(inputs)["vision_fusion"])[0]

    state, prefill = Peak.of(begin, device)
    _, decode = Peak.of(lambda: walk.steps(state, walk.tokens), device)
    dsocr_check([compare_peaks(prefill, decode, device)])
