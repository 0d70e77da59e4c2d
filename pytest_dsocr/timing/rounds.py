"""Measurement of one implementation: rounds of one page, and quantities that are the same in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_dsocr.base.reading import Identity, Time
from pytest_dsocr.models import OF_VIEWS
from pytest_dsocr.models.spec import FUSION, PREFILL, PREPROCESS, TOKENIZER

ENCODERS = tuple(OF_VIEWS)
"""Stages that are modules within vision."""
ON_DEVICE = (*ENCODERS, FUSION, "vision", PREFILL)
"""Stages that a GPU works for once a page. ``vision`` is that of a subject without modules."""
BEFORE_STEPS = (PREPROCESS, TOKENIZER, *ON_DEVICE)
"""Stages before the first token."""
FEW = 8
"""Decode steps at each end that early and late are the median of, and what grows by the token is read off."""
LATE, PAGE = "decode.late", "page"
QUANTITIES = (*BEFORE_STEPS, "first_token", "decode", "decode.early", LATE, "postprocess", PAGE)
"""Quantities that may be timed; those that a subject does not offer are left out."""
OF_START = tuple(name for name in QUANTITIES if name not in (LATE, PAGE))
"""Quantities that need a page's stages and its first decode steps, and not the whole page."""
OF_WHOLE = (LATE, PAGE)


@dataclass(frozen=True)
class Round:
    """Times and conditions of one reading of a page, stage by stage."""

    wall_ms: Mapping[str, Time]
    """Milliseconds of the host's clock by quantity, such as ``projector``, ``prefill``, ``decode`` (a token), ``page``;
    on a GPU with a synchronise on both sides."""
    host_ms: Mapping[str, Time] = field(default_factory=dict)
    """Milliseconds of the host's small work around each quantity; empty if it was not timed."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """State of the machine around the round: clocks in MHz, temperature, load."""
    spoilt: tuple[str, ...] = ()
    """Reasons not to use the round, a clause each, such as ``the GPU was throttled (power cap)``."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Round:
        """Read what a probe returned; raise ``KeyError`` or ``TypeError`` where something is missing."""
        return cls(**{**value, "spoilt": tuple(value["spoilt"])})


def alike(one: Round, other: Round) -> Round:
    """Return a round with the stages of ``other``: if that has no ``preprocess``, it is added to ``tokenizer``."""
    if PREPROCESS in other.wall_ms or not {PREPROCESS, TOKENIZER} <= {*one.wall_ms}:
        return one
    times = dict(one.wall_ms)
    times[TOKENIZER] += times.pop(PREPROCESS)
    return replace(one, wall_ms=times)


@dataclass(frozen=True)
class Measured:
    """Measurement of one implementation on one page."""

    identity: Identity
    """Identity of the measurement, see :func:`pytest_dsocr.timing.identity.identity_of`."""
    exact: Mapping[str, int]
    """Quantities without noise, such as ``tokens`` and ``decode.synchronisations``."""
    rounds: tuple[Round, ...]

    @property
    def good(self) -> tuple[Round, ...]:
        """The rounds that are used."""
        return tuple(one for one in self.rounds if not one.spoilt)

    @property
    def why_spoilt(self) -> str:
        """The first reason why a round was not used."""
        return next((reason for one in self.rounds for reason in one.spoilt), "too few were taken")

    @property
    def quantities(self) -> tuple[str, ...]:
        """Quantities that every good round has the time of, in the order of the stages."""
        names = self.good[0].wall_ms if self.good else ()
        return tuple(name for name in names if all(name in one.wall_ms for one in self.good))

    def wall_ms(self, quantity: str) -> list[float]:
        """Return a quantity's milliseconds in each good round."""
        return [one.wall_ms[quantity] for one in self.good]
