"""A measurement in sentences: where the time is spent, what limits it, and how near to the roofline it is."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from pytest_dsocr.cost.roofline import LAUNCH_BOUND, Bound, Device, Limit, Roof, Share, limit_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import FUSION, PREFILL, PREPROCESS, TOKENIZER
from pytest_dsocr.timing.host import busy_ms, idle_share
from pytest_dsocr.timing.rounds import ENCODERS, Measured
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict

TELLING = 0.02
"""Share by which the host has to be faster or slower to be mentioned."""
TOKENS = ("tokens.prompt", "tokens.image", "tokens.output")
OF_FIRST = (PREPROCESS, TOKENIZER, "vision", FUSION, PREFILL)
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class RoofShare:
    """Measured time with its roof."""

    quantity: str
    measured_ms: float
    bound: Bound
    limit: Limit | None
    """Limit of the stage, or None if unknown: see :func:`~pytest_dsocr.cost.roofline.limit_of`."""

    @property
    def share(self) -> Share:
        """Shares of the roof that the measured time reaches."""
        return self.bound.share(self.measured_ms)

    @property
    def limit_text(self) -> str:
        """Limit of the stage in words."""
        return str(self.limit or NOT_KNOWN)


def roof_over(measured: Measured, arch: Architecture, page_px: tuple[int, int], device: Device) -> Roof | None:
    """Return the roof over a measured page; None where its tokens were not counted, or its dtype has no peak."""
    exact, setup, page = measured.exact, measured.identity["setup"], measured.identity["page"]
    if not {*TOKENS} <= {*exact} or setup["dtype"] not in device.tflops:
        return None
    prompt, image, output = (exact[name] for name in TOKENS)
    how = {"dtype": setup["dtype"], "attention": setup["attention"]}
    return Roof.of(arch, Workload(page_px, arch.family.preset(page["preset"]), prompt - image, output, **how), device)


def nearness(measured: Measured, roof: Roof) -> Iterator[RoofShare]:
    """Yield each time that was taken in the good rounds and that has a roof, in the order of the stages."""
    for quantity in measured.quantities:
        if one := roof.bounds.get(quantity):
            measured_ms = median(measured.wall_ms(quantity))
            yield RoofShare(quantity, measured_ms, one, limit_of(one, measured_ms, idle_share(measured, quantity)))


def nearness_json(measured: Measured, roof: Roof) -> dict[str, Any]:
    """Return the roof over a measurement as JSON values."""
    times = {
        one.quantity: {
            "measured_ms": one.measured_ms,
            "least_ms": one.bound.ms,
            "share": asdict(one.share),
            "limit": one.limit_text,
        }
        for one in nearness(measured, roof)
    }
    parts = {"device": roof.text, "source": roof.device.source, "prefill_in_steps": roof.prefill_in_steps}
    return {**parts, "times": times}


def of_run(measured: Measured, roof: Roof | None = None) -> Iterator[str]:
    """Yield the main results: the page, a token, the limit, and how near to the ``roof`` they are."""
    if not measured.good:
        yield f"no good round of {len(measured.rounds)}: {measured.why_spoilt}"
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
    if "first_token" in times:
        yield _first_token(times)
    yield from _limit(measured, times)
    if roof is not None:
        by_limit: dict[str, list[str]] = {}
        for one in nearness(measured, roof):
            by_limit.setdefault(one.limit_text, []).append(f"{one.quantity} {one.share.roof:.1%}")
        limits = "; ".join(f"{limit}: {', '.join(shares)}" for limit, shares in by_limit.items())
        yield f"of the roof ({roof.text}): {limits}"
    if "prefill" in times and "decode" in times:
        expected = roof.prefill_in_steps if roof else None
        yield (
            f"prefill takes as long as {times['prefill'] / times['decode']:.1f} decode steps, for it runs "
            f"{measured.exact.get('tokens.prompt', 0)} tokens at once where a step runs one"
            + (f"; with both at the roof it would be {expected:.1f}" if expected else "")
        )
    if spoilt := len(measured.rounds) - len(measured.good):
        yield f"{spoilt} of {len(measured.rounds)} rounds were not used: {measured.why_spoilt}"


def _first_token(times: Mapping[str, float]) -> str:
    """Describe the stages before the first token as shares, and the next step as a share of it."""
    first, vision = times["first_token"], sum(times.get(name, 0.0) for name in (*ENCODERS, "vision"))
    found = {**times, "vision": vision}
    shares = ", ".join(f"{name} {found[name] / first:.0%}" for name in OF_FIRST if found.get(name))
    step = f"; the next step takes {times['decode'] / first:.0%} as long" if "decode" in times else ""
    return f"of the first token: {shares}{step}"


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


def of_host(ratio: float) -> Iterator[str]:
    """Describe the host's speed relative to the baseline's run, if it differs enough."""
    if abs(ratio - 1) >= TELLING:
        yield (
            f"the host took {ratio:.2f} times as long for the same small work as at the baseline; "
            "times are corrected for it"
        )


def of_judgement(one: Judgement, other: str = "the baseline") -> str:
    """Describe how a quantity compares with that of ``other``, in a phrase that starts with the finding."""
    if one.pace is TimingVerdict.NOT_COMPARED:
        return one.reason
    change = f"{one.ratio - 1:+.1%} ({one.low - 1:+.1%} to {one.high - 1:+.1%})"
    times = f"{ms(one.after_ms)}, {other} {ms(one.before_ms)}"
    more = f"; {one.reason or f'some {one.wanted} rounds would tell'}" if one.pace is TimingVerdict.AMBIGUOUS else ""
    return f"{one.pace}: {change}, allowed +{one.limit:.1%}; {times}, {one.rounds} rounds{more}"


def ms(value: float) -> str:
    """Return milliseconds with three figures, and seconds from ten thousand on."""
    if value >= 1e4:
        return f"{value / 1e3:.1f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"
