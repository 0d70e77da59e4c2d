"""What one run shows by itself, without a baseline: signs of work that a page does not need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

WAITS_A_TOKEN = 1
"""The host has to learn which token was chosen."""


@dataclass(frozen=True)
class Flag:
    """One thing that must not be."""

    raised: bool
    measured: str
    """What was found, beside what is allowed."""


def _vision_in_decode(exact: Mapping[str, int]) -> Flag:
    found = exact["decode.convolutions"]
    told = f"{found} convolutions in a decode step; none is allowed, since only vision has any"
    return Flag(found > 0, told)


def _vision_again(exact: Mapping[str, int]) -> Flag:
    once, found = exact["vision.views"], exact["page.views"]
    told = f"reading the page encodes {found} views, and it has {once}"
    return Flag(found > once, told)


def _waits_in_step(exact: Mapping[str, int]) -> Flag:
    found = exact["decode.waits"]
    told = f"a decode step waits for the device {found} times by itself (.item(), nonzero, copies); none is allowed"
    return Flag(found > 0, told)


def _waits_a_token(exact: Mapping[str, int]) -> Flag:
    tokens = max(1, exact["tokens.output"])
    found = (exact["page.waits"] - exact["page.waits.first"]) / tokens
    told = f"reading waits for the device {found:.2f} times a token; {WAITS_A_TOKEN} is allowed, to learn the token"
    return Flag(found > WAITS_A_TOKEN, told)


def _cache_copied(exact: Mapping[str, int]) -> Flag:
    found, token = exact["decode.bytes.growth"], exact["cache.bytes_a_token"]
    told = f"each step stores {found:,} bytes more than the one before, and a token of the cache has {token:,}: " + (
        "the cache is copied whole at each step" if found >= token else "it is not copied"
    )
    return Flag(found >= token, told)


def _operators_grow(exact: Mapping[str, int]) -> Flag:
    found = exact["decode.operators.growth"]
    told = (
        f"each step calls {found} operators more than the one before, of {exact['decode.operators']}; none is allowed"
    )
    return Flag(found > 0, told)


def _host_work_grows(exact: Mapping[str, int]) -> Flag:
    found = exact["page.lines.growth"]
    told = f"each token runs {found} lines of Python more than the one before; none is allowed, or pages grow quadratic"
    return Flag(found > 0, told)


FLAGS: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, int]], Flag]]] = {
    "vision in decode": (("decode.convolutions",), _vision_in_decode),
    "vision runs again": (("vision.views", "page.views"), _vision_again),
    "waits in a step": (("decode.waits",), _waits_in_step),
    "waits a token": (("page.waits", "page.waits.first", "tokens.output"), _waits_a_token),
    "cache copied": (("decode.bytes.growth", "cache.bytes_a_token"), _cache_copied),
    "operators grow": (("decode.operators.growth", "decode.operators"), _operators_grow),
    "host work grows": (("page.lines.growth",), _host_work_grows),
}
"""Each with the exact quantities that it needs."""


def flag(name: str, exact: Mapping[str, int]) -> Flag | None:
    """Tell one; None where the subject does not show what it needs."""
    needs, told = FLAGS[name]
    return told(exact) if all(one in exact for one in needs) else None


def flags(exact: Mapping[str, int]) -> dict[str, Flag]:
    """Tell every flag that the subject lets one tell, by name."""
    return {name: found for name in FLAGS if (found := flag(name, exact)) is not None}
