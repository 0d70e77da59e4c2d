"""Models and processes that a run needs besides its two sides, kept from case to case."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from pytest_dsocr.compare.tolerances import Budget
from pytest_dsocr.describe.ids import Vocabulary
from pytest_dsocr.describe.state import PageSeen
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config, Setup
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.records.subject_result import HALF
from pytest_dsocr.reference.opening import WantedReference
from pytest_dsocr.run.half import HalfRange
from pytest_dsocr.subjects.engine import EngineSubject

MOST_EARLIER = 2
"""Number of the last pages that are looked for in a wrong tensor, besides the first."""


@dataclass(frozen=True, eq=False)
class RunResources:
    """Resources of one run; each is loaded when it is first needed, as it may be of full size."""

    setup: Setup
    """Settings of the subject."""
    explainer: Explainer
    pages: dict[str, PageSeen] = field(default_factory=dict)
    """Pages that were compared so far, by their cases."""
    read: list[Case] = field(default_factory=list)
    """Cases that were compared so far, in their order."""
    described_stages: set[str] = field(default_factory=set)
    """Stages of the tensors that were described."""
    substituted: set[tuple[str, bool]] = field(default_factory=set)
    """First wrong stages after which parts received the reference's tensors, and whether the page was cut."""
    followed: set[tuple[str, bool]] = field(default_factory=set)
    """First wrong stages from which further causes were looked for, and whether the page was cut."""
    _rounders: dict[bool, Rounder] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the resources of a run, with nothing loaded."""
        limits_s = (config.explain, config.time_limit, config.start_limit)
        return cls(config.setup, Explainer(config.setup, *limits_s, config.out))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint under test."""
        return resolve(self.setup.checkpoint)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The checkpoint's ids."""
        return Vocabulary(self.checkpoint.tokenizer, self.checkpoint.architecture.decoder.vocab_size)

    @cached_property
    def key(self) -> RecordingKey:
        """The key of the subject."""
        setup = self.setup
        return WantedReference(self.checkpoint, setup.device, setup.dtype, setup.attention).key

    @cached_property
    def donor(self) -> EngineSubject:
        """An engine that supplies the tensors which a recording does not contain: that of rounding, if it is loaded."""
        rounder = next(iter(self._rounders.values()), None) or self.rounder_within(None)
        return EngineSubject(rounder.vendor)

    @cached_property
    def half(self) -> HalfRange:
        """The range of float16, for a subject that computes in it."""
        is_own = self.setup.dtype == HALF
        rounder = self.rounder_within(None) if is_own else Rounder(replace(self.setup, dtype=HALF), 0.0)
        return HalfRange(self.setup.checkpoint, rounder)

    def rounder_within(self, budget: Budget | None) -> Rounder:
        """Return the rounder for a subject with this budget."""
        fewer_bits = budget is not None and "kl" in budget.allowed
        if fewer_bits not in self._rounders:
            self._rounders[fewer_bits] = Rounder(self.setup, self.explainer.budget_s, fewer_bits)
        return self._rounders[fewer_bits]

    def earlier_than(self, case: Case) -> list[Case]:
        """Return the first and the last pages that were read before a case; state may come from any of them."""
        before = [one for one in self.read if one != case and not one.is_several]
        return [*dict.fromkeys((*before[-MOST_EARLIER:][::-1], *before[:1]))]

    def close(self) -> None:
        """End the explaining process."""
        self.explainer.close()
