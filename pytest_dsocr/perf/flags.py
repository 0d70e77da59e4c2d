"""What one run shows by itself, without a baseline: signs of work that a page does not need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from pytest_dsocr.perf.rounds import Measured

WAITS_A_TOKEN = 1
"""The host has to learn which token was chosen."""


@dataclass(frozen=True)
class Flag:
    """One thing that must not be."""

    name: str
    raised: bool
    measured: str
    """What was found, beside what is allowed."""


def flags(measured: Measured) -> Iterator[Flag]:
    """Yield every flag that the subject's level lets one tell."""
    for needs, told in FLAGS.items():
        if all(name in measured.exact for name in needs):
            yield told(measured.exact)


def _vision_in_decode(exact: Mapping[str, int]) -> Flag:
    found = exact["decode.convolutions"]
    told = f"{found} convolutions in a decode step; none is allowed, for only vision has any"
    return Flag("vision in decode", found > 0, told)


def _vision_again(exact: Mapping[str, int]) -> Flag:
    once, found = exact["vision.views"], exact["page.views"]
    told = f"reading the page encodes {found} views, and it has {once}"
    return Flag("vision runs again", found > once, told)


def _waits_in_step(exact: Mapping[str, int]) -> Flag:
    found = exact["decode.waits"]
    told = f"a decode step waits for the device {found} times by itself (.item(), nonzero, copies); none is allowed"
    return Flag("waits in a step", found > 0, told)


def _waits_a_token(exact: Mapping[str, int]) -> Flag:
    tokens = max(1, exact["tokens.output"])
    found = (exact["page.waits"] - exact["first_token.waits"]) / tokens
    told = f"reading waits for the device {found:.2f} times a token; {WAITS_A_TOKEN} is allowed, to learn the token"
    return Flag("waits a token", found > WAITS_A_TOKEN, told)


def _cache_copied(exact: Mapping[str, int]) -> Flag:
    found, token = exact["decode.bytes.growth"], exact["cache.bytes_a_token"]
    told = (
        f"each step stores {found:,} bytes more than the one before, and a token of the cache has {token:,}: "
        + ("the cache is copied whole at each step" if found >= token else "it is not copied")
    )
    return Flag("cache copied", found >= token, told)


def _operators_grow(exact: Mapping[str, int]) -> Flag:
    found = exact["decode.operators.growth"]
    told = f"each step calls {found} operators more than the one before, of {exact['decode.operators']}; none is allowed"
    return Flag("operators grow", found > 0, told)


def _host_work_grows(exact: Mapping[str, int]) -> Flag:
    found = exact["page.lines.growth"]
    told = f"each token runs {found} lines of Python more than the one before; none is allowed, or pages grow quadratic"
    return Flag("host work grows", found > 0, told)


FLAGS: Mapping[tuple[str, ...], Callable[[Mapping[str, int]], Flag]] = {
    ("decode.convolutions",): _vision_in_decode,
    ("vision.views", "page.views"): _vision_again,
    ("decode.waits",): _waits_in_step,
    ("page.waits", "first_token.waits", "tokens.output"): _waits_a_token,
    ("decode.bytes.growth", "cache.bytes_a_token"): _cache_copied,
    ("decode.operators.growth", "decode.operators"): _operators_grow,
    ("page.lines.growth",): _host_work_grows,
}
"""The exact quantities that each needs."""


def idle_share(measured: Measured) -> float | None:
    """Give the share of a decode step in which the GPU does nothing; None where its work was not counted."""
    if "decode.busy_us" not in measured.exact or not measured.good:
        return None
    return max(0.0, 1 - measured.exact["decode.busy_us"] / 1e3 / median(measured.wall_ms("decode")))
