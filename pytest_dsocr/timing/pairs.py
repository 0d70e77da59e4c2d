"""Pairs of rounds of two sides: of a page's start and of the whole page, until each quantity is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from pytest_dsocr.base.words import count
from pytest_dsocr.models.spec import PREPROCESS, TOKENIZER
from pytest_dsocr.timing.budget import TimeBudget
from pytest_dsocr.timing.early import AGREEING
from pytest_dsocr.timing.host import of_turns, speed_apart, steady
from pytest_dsocr.timing.limits import ANY, EACH_TOKEN, LOOKS, MOST_TAKEN, Watcher, is_over, known, limits_of, looks_at
from pytest_dsocr.timing.rounds import FEW, OF_START, OF_WHOLE, PAGE, Round, alike
from pytest_dsocr.timing.side import TimedSide
from pytest_dsocr.timing.statistics import Judgement, Samples, judge

RoundPair = tuple[Round, Round]
Quantities = tuple[str, ...]
"""Quantities that the same rounds measure."""
ENDED = "interrupted"
SHORT_MS, MOST_REPEATS = 200.0, 4
"""A round repeats quick stages until it takes this long, and at most this often."""
BOTH_OF = {TOKENIZER: (PREPROCESS, TOKENIZER)}
"""Quantities that a side may have in parts."""


@dataclass
class PairedRounds:
    """Pairs of rounds and the verdicts on them, for two sides that are warmed up."""

    both: Sequence[TimedSide]
    groups: Sequence[Quantities]
    """Groups, the one that is read faster first."""
    budget: TimeBudget
    watch: Watcher
    slower: Mapping[str, float] = field(default_factory=dict)
    """Allowed slow-down by quantity, where it is not the default."""
    stages: Sequence[str] = ()
    """Quantities to judge; all if none is named."""
    most_rounds: int = LOOKS[-1]
    """Largest number of pairs of each group."""
    taken: dict[Quantities, list[RoundPair]] = field(init=False)
    took_s: dict[Quantities, float] = field(init=False, default_factory=dict)
    """Seconds of the last pair of each group."""
    judgements: Sequence[Judgement] = ()
    settled: dict[str, Judgement] = field(init=False, default_factory=dict)
    """Verdicts as the look left them that settled them; no more is measured of these."""

    def __post_init__(self) -> None:
        """Take the first pair of each group; the whole page's always, since limits depend on the page's time."""
        self.taken = {group: [] for group in self.groups}
        for group in self.groups:
            if only := self.asked(group) or ([PAGE] if group is self.groups[-1] else []):
                self._take(group, only)
        self.looks, [self.fewest, *_] = looks_at(self.quantities, self.most_rounds), looks_at(self.quantities)

    @property
    def all(self) -> list[RoundPair]:
        """The pairs of all groups."""
        return [*chain.from_iterable(self.taken.values())]

    @property
    def quantities(self) -> int:
        """Number of quantities that are judged."""
        return len(self.stages) or len({name for pair in self.all for one in pair for name in one.wall_ms})

    @property
    def page_s(self) -> float:
        """Seconds that the slower side takes for a page."""
        return max(one.wall_ms.get(PAGE, 0.0) for pair in self.all for one in pair) / 1e3

    def asked(self, group: Quantities) -> list[str]:
        """Return the quantities of a group that are to be judged."""
        return [name for name in group if not self.stages or name in self.stages]

    def settle(self) -> str:
        """Take pairs until all is judged or the time is up; return why fewer were taken than could have helped.

        Until the first look, what is far apart is judged after each pair. If Ctrl-C is pressed, the pairs so far are
        judged.
        """
        last = len(self.looks)
        try:
            is_short = self._take_all()
        except KeyboardInterrupt:
            for side in self.both:
                side.process.end()
            self.judgements = self._judged(last)
            return f"{ENDED} after {count(len(self.all), 'pair')}"
        if is_over(self.judgements):
            return ""
        self.judgements = self._judged(last)
        if is_short:
            return f"the {self.budget.seconds:g} s of --seconds were over after {count(len(self.all), 'pair')}"
        few = self.looks[-1] < self.fewest
        return f"fewer than {self.fewest} pairs tell only large differences" if few else ""

    def _take_all(self) -> bool:
        """Take pairs until all is judged, or no more fit; return whether some did not fit."""
        is_short = False
        for look, upto in ((0, min(AGREEING, self.looks[-1])), *enumerate(self.looks, 1)):
            before = len(self.all)
            for group in self.groups:
                while (open_ones := self._open(group)) and self._wants(group, upto):
                    if self.took_s[group] > self.budget.for_rounds_s:
                        is_short = True
                        break
                    self._show(group)
                    self._take(group, open_ones)
                    if upto <= self.looks[0]:
                        self.judgements = self._judged(0)
            self.judgements = self._judged(look)
            is_idle = is_short and len(self.all) == before
            if is_over(self.judgements) or is_idle or (not self.judgements and upto >= self.looks[0]):
                break
        return is_short

    def _wants(self, group: Quantities, upto: int) -> bool:
        return self._good(group) < upto and len(self.taken[group]) < MOST_TAKEN * upto

    def _good(self, group: Quantities) -> int:
        return sum(not spoilt(pair) for pair in self.taken[group])

    def _open(self, group: Quantities) -> list[str]:
        if not self.judgements:
            return self.asked(group) if self.taken[group] else []
        return [one.quantity for one in self.judgements if one.quantity in group and not (one.settled or one.reason)]

    def _judged(self, look: int) -> Sequence[Judgement]:
        """Judge the pairs so far; before the end only once each group has a good pair."""
        looks = len(self.looks)
        if look < looks and not all(self._good(group) for group in self.groups if self.taken[group]):
            return ()
        judged = judge_pairs(self.all, self.slower, look, looks, self.stages)
        found = [self.settled.get(one.quantity, one) for one in judged]
        self.settled.update((one.quantity, one) for one in found if one.settled)
        return found

    def _show(self, group: Quantities) -> None:
        spoilt_by = [why for pair in self.all for why in spoilt(pair)]
        self.watch("; ".join(("rounds", *known(self.judgements, spoilt_by))), self._good(group), self.looks[-1])

    def _take(self, group: Quantities, only: Sequence[str]) -> None:
        before = self.taken[group]
        began_s = self.budget.elapsed_s
        before.append(one_pair(self.both, len(before), only, repeats_of(before[-1]) if before else 1))
        self.took_s[group] = self.budget.elapsed_s - began_s


def groups_of(tokens: int) -> list[Quantities]:
    """Return the groups for a page of this many tokens, or 0 if no side has stages."""
    whole = OF_WHOLE if tokens > 2 * FEW else (PAGE,)
    return [OF_START, whole] if tokens else [whole]


def one_pair(both: Sequence[TimedSide], number: int, only: Sequence[str], repeats: int = 1) -> RoundPair:
    """Take one pair of rounds; return A's first, whichever side reads first.

    Pairs alternate (ABBA). Over two of them, a machine that gets steadily slower favours no side.
    """
    asked = [name for one in only for name in BOTH_OF.get(one, (one,))]
    order = (1, 0) if number % 2 else (0, 1)
    found = {k: Round.from_json(both[k].ask("round", only=asked, repeats=repeats)) for k in order}
    return alike(found[0], found[1]), alike(found[1], found[0])


def repeats_of(pair: RoundPair) -> int:
    """Return how often the next round repeats its stages, from the longest of them in the last pair."""
    steps = {True: 2 * FEW, False: 1}
    longest = [ms * steps[name.startswith(EACH_TOKEN)] for one in pair for name, ms in one.wall_ms.items()]
    return min(max(int(SHORT_MS / max(*longest, 1e-3, 1e-3)), 1), MOST_REPEATS)


def judge_pairs(
    pairs: Sequence[RoundPair], slower: Mapping[str, float], look: int, looks: int, stages: Sequence[str] = ()
) -> list[Judgement]:
    """Judge pairs of rounds; a quantity that one side lacks is not compared. Return nothing if all are spoilt."""
    good = good_pairs(pairs)
    times = {name: times_of(taken, name) for name, taken in good.items()}
    if not times:
        return []
    named = dict.fromkeys(stages or (*(name for pair in pairs for one in pair for name in one.wall_ms), *slower))
    why = "not timed in every round of both sides"
    lost = [Judgement.not_compared(name, why) for name in named if name not in times and name != ANY]
    asked = {name: times[name] for name in named if name in times}
    margins = {name: speed_apart(good[name], name) for name in asked}
    limits = limits_of(times, slower)
    return [*judge(asked, limits, paired=True, look=look, looks=looks, margins=margins), *lost]


def good_pairs(pairs: Sequence[RoundPair]) -> dict[str, Sequence[RoundPair]]:
    """Return the good and steady pairs that took each quantity.

    A quantity that only one side has the time of in a pair is left out.
    """
    good = [pair for pair in pairs if not spoilt(pair)]
    found: dict[str, Sequence[RoundPair]] = {}
    for name in dict.fromkeys(name for pair in good for one in pair for name in one.wall_ms):
        taken = [pair for pair in good if any(name in one.wall_ms for one in pair)]
        if all(name in one.wall_ms for pair in taken for one in pair):
            found[name] = steady(taken, name)
    return found


def times_of(pairs: Sequence[RoundPair], quantity: str) -> Samples:
    """Return both sides' milliseconds of a quantity, corrected for the host."""
    a, b = zip(*pairs, strict=True)
    return of_turns(a, quantity), of_turns(b, quantity)


def spoilt(pair: RoundPair) -> list[str]:
    """Return why a pair is not used."""
    return [why for one in pair for why in one.spoilt]
