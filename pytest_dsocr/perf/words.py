"""What a measurement says in sentences: where the time goes, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from pytest_dsocr.cost.roof import Roof
from pytest_dsocr.cost.roofline import LAUNCH_BOUND, Limit
from pytest_dsocr.perf.host import busy_ms, idle_share
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.nearness import nearness
from pytest_dsocr.perf.rounds import Measured

TELLING = 0.02
"""Share by which the host has to be faster or slower to be told."""
GLYPHS = "▁▂▃▄▅▆▇█"
BINS = 12


def in_short(measured: Measured, roof: Roof | None = None) -> Iterator[str]:
    """Yield what is worth reading at once: the page, a token, the limit, and how near to the ``roof`` it all is."""
    if not measured.good:
        yield f"no good round of {len(measured.rounds)}: {why_spoilt(measured)}"
        return
    times = {name: median(measured.wall_ms(name)) for name in measured.quantities}
    page = f"a page takes {ms(times['page'])}"
    if "decode" in times:
        tokens, decode = measured.exact.get("tokens.output", 0), times["decode"]
        share = times["first_token"] / (times["first_token"] + decode * max(tokens - 1, 0))
        page += (
            f", {tokens} tokens of {ms(decode)} ({1e3 / decode:.0f} a second); the first comes after "
            f"{ms(times['first_token'])}, {share:.0%} of the page"
        )
    yield page
    yield from _limit(measured, times)
    if roof is not None:
        yield _below(measured, roof)
    if "prefill" in times and "decode" in times:
        expected = roof.prefill_in_steps if roof else None
        yield (
            f"prefill takes as long as {times['prefill'] / times['decode']:.1f} decode steps, for it runs "
            f"{measured.exact.get('tokens.prompt', 0)} tokens at once where a step runs one"
            + (f"; with both at the roof it would be {expected:.1f}" if expected else "")
        )
    spoilt = len(measured.rounds) - len(measured.good)
    if spoilt:
        yield f"{spoilt} of {len(measured.rounds)} rounds were not used: {why_spoilt(measured)}"


def _limit(measured: Measured, times: Mapping[str, float]) -> Iterator[str]:
    idle = idle_share(measured)
    if idle is None:
        return
    word = Limit.LAUNCHES if idle > LAUNCH_BOUND else "bound by the device"
    busy, kernels = busy_ms(measured.exact, "decode"), measured.exact["decode.kernels"]
    yield (
        f"decode is {word}: of {ms(times['decode'])} on the wall the device works {ms(busy)}, in {kernels} kernels; "
        f"it idles {idle:.0%} of a step"
    )


def host_told(ratio: float) -> Iterator[str]:
    """Say how fast the host was, beside the baseline's run, where that makes a difference."""
    if abs(ratio - 1) >= TELLING:
        yield (
            f"the host took {ratio:.2f} times as long for the same small work as at the baseline; "
            "its part of each time is judged as if it had not"
        )


def _below(measured: Measured, roof: Roof) -> str:
    """Tell each stage's share of the roof, under what limits the stage."""
    by_limit: dict[str, list[str]] = {}
    for one in nearness(measured, roof):
        by_limit.setdefault(one.limit_in_words, []).append(f"{one.quantity} {one.share.roof:.1%}")
    limits = "; ".join(f"{limit}: {', '.join(shares)}" for limit, shares in by_limit.items())
    return f"of the roof ({roof.told}): {limits}"


def why_spoilt(measured: Measured) -> str:
    """Give the first reason why a round was not used."""
    return next((reason for one in measured.rounds for reason in one.spoilt), "none was taken")


def told(one: Judgement, other: str = "the baseline") -> str:
    """Say how a quantity compares with that of ``other``, in a phrase that begins with the finding."""
    if one.pace is Pace.NOT_COMPARED:
        return one.reason
    change = f"{one.ratio - 1:+.1%} ({one.low - 1:+.1%} to {one.high - 1:+.1%})"
    times = f"{ms(one.after_ms)}, {other} {ms(one.before_ms)}"
    more = f"; {one.reason or f'some {one.wanted} rounds would tell'}" if one.pace is Pace.AMBIGUOUS else ""
    return f"{one.pace}: {change}, allowed +{one.limit:.1%}; {times}, {one.rounds} rounds{more}"


def distribution(times_ms: Sequence[float], low: float, high: float) -> str:
    """Draw where times lie between two bounds, as one line of bars."""
    counts = [0] * BINS
    for one in times_ms:
        place = (one - low) / (high - low) if high > low else 0.0
        counts[min(BINS - 1, max(0, int(place * BINS)))] += 1
    most = max(counts) or 1
    return "".join(" " if not number else GLYPHS[(len(GLYPHS) - 1) * number // most] for number in counts)


def distributions(before_ms: Sequence[float], after_ms: Sequence[float]) -> tuple[str, str]:
    """Draw two sides one above the other, on one scale."""
    low, high = min(*before_ms, *after_ms), max(*before_ms, *after_ms)
    scale = f"{ms(low)} to {ms(high)}"
    return (
        f"baseline |{distribution(before_ms, low, high)}| {scale}, {len(before_ms)} rounds",
        f"this run |{distribution(after_ms, low, high)}| {len(after_ms)} rounds",
    )


def ms(value: float) -> str:
    """Give milliseconds with three figures, and in seconds from ten thousand on."""
    if value >= 1e4:
        return f"{value / 1e3:.1f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"
