"""Counted quantities: signs of work that a page does not need, and differences between two measurements."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_dsocr.base.words import count
from pytest_dsocr.timing.rounds import Measured

WAITS_A_TOKEN = 1
"""The host has to learn which token was chosen."""
FEWEST_TOKENS = {"decode.early": 17, "decode.late": 17, "page.lines.growth": 18, "decode.": 4, "decode": 2}
"""Number of tokens that a quantity needs, by the prefix of its name; each token but the first is a step."""
FEW_STEPS = 2
"""The vendor's own code works 3.6 steps long for a prompt of 729 tokens, which asks all experts."""
WORK = ("tokens.", "page.characters", "vision.views")
"""Quantities of the work itself: if they differ, times are of different work."""
PARTS = {"page": 6, "stages": 4, "device": 6, "lines": 2}
"""Parts of counting, in the order of their use, with how many times as long as reading the page each may take."""
OF_TEXT = ("page.characters", "page.operators", "page.waits", "page.peak_bytes")
"""Quantities of a page that depend on the length of its text."""
NEARLY = {"_us": 0.03, "peak_bytes": 0.01}
"""Endings of quantities that vary between runs, with the share that they may differ by."""
SHORT_US = 30
"""Microseconds of a stage's kernels that may always differ."""
CLOCK_SHARE = 0.05
"""By how much the median of a condition, such as a clock, has to differ to be shown."""

Exact = Mapping[str, int]


@dataclass(frozen=True)
class Flag:
    """Outcome of one check of the counts."""

    raised: bool
    measured: str
    """Description of the finding and of what is allowed."""


def _vision_again(once: int, found: int) -> Flag:
    return Flag(found > once, f"reading the page encodes {found} views, and it has {once}")


def _vision_left_out(once: int, found: int, read: int, first: int) -> Flag:
    """Judge it where reading calls enough operators for none of it to be hidden in a CUDA graph."""
    return Flag(once > found == 0 and read >= first, f"reading the page encodes {found} views, and it has {once}")


def _short_prefill(prompt: int, step: int) -> Flag:
    text = f"the prompt takes {prompt:,} (us of the GPU, or else FLOPs) and a step {step:,}; of a page with views"
    return Flag(prompt <= FEW_STEPS * step, f"{text} it is more than {FEW_STEPS} steps")


def _waits_a_token(waits: int, of_first: int, tokens: int) -> Flag:
    found = (waits - of_first) / max(1, tokens)
    text = f"reading waits for the device {found:.2f} times a token; {WAITS_A_TOKEN} is allowed, to learn the token"
    return Flag(found > WAITS_A_TOKEN, text)


def _cache_copied(found: int, token: int) -> Flag:
    text = f"each step stores {found:,} bytes more than the one before, and a token of the cache has {token:,}: "
    return Flag(
        found >= token, text + ("the cache is copied whole at each step" if found >= token else "it is not copied")
    )


FLAGS: Mapping[str, tuple[tuple[str, ...], str | Callable[..., Flag]]] = {
    "vision in decode": (
        ("decode.convolutions",),
        "{} convolutions in a decode step; none is allowed, since only vision has any",
    ),
    "vision runs again": (("vision.views", "page.views"), _vision_again),
    "vision left out": (("vision.views", "page.views", "page.operators", "first_token.operators"), _vision_left_out),
    "short prefill": (("prefill.busy_us", "decode.busy_us"), _short_prefill),
    "waits in a step": (
        ("decode.waits",),
        "a decode step waits for the device {} times by itself (.item(), nonzero, copies); none is allowed",
    ),
    "waits a token": (("page.waits", "page.waits.first", "tokens.output"), _waits_a_token),
    "cache copied": (("decode.bytes.growth", "cache.bytes_a_token"), _cache_copied),
    "operators grow": (
        ("decode.operators.growth", "decode.operators"),
        "each step calls {} operators more than the one before, of {}; none is allowed",
    ),
    "host work grows": (
        ("page.lines.growth",),
        "each token runs {} lines of Python more than the one before; none is allowed, or pages grow quadratic",
    ),
}
"""Flags by name: the exact quantities that each needs, and its judge; a text if the first quantity must be 0."""


ON_A_CPU = {"prefill.busy_us": "prefill.flops", "decode.busy_us": "step.flops"}
"""Counts to use if there is no GPU whose work could be timed."""


def flag(name: str, exact: Exact) -> Flag | None:
    """Evaluate one flag; None if the subject does not offer a quantity that it needs."""
    needs, judged = FLAGS[name]
    needs = tuple(one if one in exact else ON_A_CPU.get(one, one) for one in needs)
    values = [exact[one] for one in needs if one in exact]
    if len(values) < len(needs):
        return None
    return Flag(values[0] > 0, judged.format(*values)) if isinstance(judged, str) else judged(*values)


def too_few_tokens(quantities: Iterable[str], exact: Exact) -> str:
    """Say that the page has too few tokens for these quantities; empty if it has enough, or they were not counted."""
    starts = (next((start for start in FEWEST_TOKENS if one.startswith(start)), "") for one in quantities)
    fewest, tokens = max((FEWEST_TOKENS.get(start, 0) for start in starts), default=0), exact.get("tokens.output")
    return f"too few tokens ({tokens}, needs {fewest})" if tokens is not None and tokens < fewest else ""


def flags(exact: Exact) -> dict[str, Flag]:
    """Evaluate every flag that the subject shows enough for, by name."""
    return {name: found for name in FLAGS if (found := flag(name, exact)) is not None}


@dataclass(frozen=True)
class CountChange:
    """A changed exact quantity; a value is None if its side lacks it."""

    quantity: str
    before: int | None
    after: int | None

    @property
    def is_work(self) -> bool:
        """Whether the sides do different work."""
        return self.quantity.startswith(WORK)

    @property
    def is_worse(self) -> bool:
        """Whether the second side does more for the same work."""
        return not self.is_work and self.before is not None and self.after is not None and self.after > self.before

    @property
    def text(self) -> str:
        """Both sides' counts, and whether the second is worse."""
        sides = (("A", self.before), ("B", self.after))
        shown = ", ".join(f"{side} {'has none' if value is None else f'{value:,}'}" for side, value in sides)
        return f"{self.quantity}: {shown}" + (", which is worse" if self.is_worse else "")


def exact_changes(a: Exact, b: Exact) -> list[CountChange]:
    """Return the counted quantities that differ; of a GPU's times and peak, by more than they always do."""
    changes = (CountChange(name, a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b)))
    return [one for one in changes if not _equal(one.quantity, one.before, one.after)]


def _equal(name: str, a: int | None, b: int | None) -> bool:
    if a is None or b is None or a == b:
        return a == b
    share = next((share for end, share in NEARLY.items() if name.endswith(end)), 0.0)
    least = SHORT_US if name.endswith("_us") else 0
    return abs(a - b) <= (max(share * max(a, b), least) if share else 0)


def exactly(found: Exact) -> Exact:
    """Leave out what is only nearly the same each time, such as the time that a GPU works."""
    return {name: value for name, value in found.items() if not name.endswith((*NEARLY,))}


def text_change(a: str, b: str) -> str:
    """Describe the difference between two readings of the page; empty if they are equal."""
    if a == b:
        return ""
    same = next((k for k, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    sizes = f"A {count(len(a), 'character')}, B {count(len(b), 'character')}"
    return f"the two do not read the same: {sizes}, different from character {same} on"


def other_changes(a: Measured, b: Measured) -> Iterator[str]:
    """Yield what differs of the sides' versions, machines and clocks, and the rounds that were not used."""
    for part in ("machine", "versions"):
        one, other = a.identity.get(part, {}), b.identity.get(part, {})
        for name in dict.fromkeys((*one, *other)):
            if one.get(name) != other.get(name):
                yield f"{name}: A {one.get(name, 'has none')}, B {other.get(name, 'has none')}"
    for name, was, now in changed_conditions(a, b):
        yield f"{name}: A {was:.4g}, B {now:.4g} (median of the rounds)"
    for label, side in (("A", a), ("B", b)):
        for why, rounds in Counter(clause for one in side.rounds for clause in one.spoilt).items():
            yield f"{label}: {count(rounds, 'round')} not used: {why}"


def changed_conditions(before: Measured, after: Measured) -> Iterator[tuple[str, float, float]]:
    """Yield each condition, such as a clock, whose medians over the good rounds differ."""
    was, now = _conditions(before), _conditions(after)
    for name in (name for name in was if name in now):
        if abs(now[name] - was[name]) > CLOCK_SHARE * max(abs(was[name]), abs(now[name])):
            yield name, was[name], now[name]


def _conditions(side: Measured) -> dict[str, float]:
    """Return the median of each numeric condition, except load and waiting, which do not describe the whole run."""
    found: dict[str, list[Any]] = defaultdict(list)
    for name, value in (item for one in side.good for item in one.conditions.items()):
        if isinstance(value, int | float) and name not in ("load", "waited_ms"):
            found[name].append(value)
    return {name: median(values) for name, values in found.items()}
