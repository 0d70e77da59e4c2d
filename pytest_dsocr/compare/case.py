"""A whole case: results of both sides, comparisons, and the explanation of the first break."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pytest_dsocr.compare.budget import loss_of, on_budget
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.readings import Readings
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, worst
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.several_texts import Told
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.records.subject_result import Reading, SubjectResult


@dataclass(frozen=True)
class Explanation:
    """Explanation of a case's first divergence, or the extent of the search for one."""

    text: str
    """Sentence that follows "explained"."""
    what: str = ""
    """Comparison that it explains; empty if nothing was tried."""
    mistakes: tuple[str, ...] = ()
    """Ids of the mistakes that it names."""
    words: tuple[str, ...] = ()
    """Words of these mistakes."""
    refuted: frozenset[str] = frozenset()
    """Ids of the mistakes that were computed and give other values than the subject's."""
    untried: int = 0
    """Number of mistakes that were not tried before the time ended."""
    is_whole: bool = False
    """Whether a mistake that it names reproduces the comparison's values, and not only a part of the difference."""
    is_proven: bool = False
    """Whether it is proven: a complete search found one cause alone, and chance is unlikely; see ``explain.proof``."""
    pages: int = 0
    """Number of pages on which a text's candidates were tried so far; 0 for anything but a text."""
    advice: str = ""
    """Thing to check; empty if the hint of the first divergence names it."""


@dataclass(frozen=True)
class FurtherCause:
    """Cause besides that of the first divergence."""

    explanation: Explanation
    description: Description | None = None

    @property
    def what(self) -> str:
        """Comparison at which the stage is wrong on its own."""
        return self.explanation.what


@dataclass(frozen=True, eq=False)
class CaseRun:
    """Results of both sides for one case, and their times."""

    case: Case
    answer: SubjectResult
    expected: ReferenceResult
    """Observation of the reference."""
    reference_s: float
    subject_s: float
    findings: tuple[str, ...] = ()
    """Findings from giving the subject the reference's tensors, a sentence each."""
    explanation: Explanation | None = None
    """Explanation of the first divergence; None if none was requested."""
    described: Mapping[str, Description] = field(default_factory=dict)
    """Relation of the subject's values to the expected ones, by the comparison that breaks first."""
    alone: Mapping[str, bool] = field(default_factory=dict)
    """Stages that received the reference's tensors, and whether they are then right."""
    further: tuple[FurtherCause, ...] = ()
    """Causes besides that of the first divergence, in the order in which to fix them."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Contribution of each stage to the divergence of the next token's distribution, in nats, if a budget is set."""
    readings: tuple[Reading, ...] = ()
    """The first reading and further ones, if several were requested."""
    told: tuple[Told, ...] = ()
    """Texts that the subject's ``text_of`` made of right tokens, if it is what gave the wrong text."""


@dataclass(frozen=True)
class CaseReport:
    """Every comparison of one case under some limits, in the order of the stages."""

    exchange: CaseRun
    comparisons: tuple[Comparison, ...]
    limits: Tolerances
    readings: Readings | None = None
    """Readings with their comparisons, if there are several; the case's own comparisons summarise them."""

    @property
    def case(self) -> Case:
        """The page, the prompt and the preset."""
        return self.exchange.case

    @property
    def fault(self) -> SubjectFaultError | None:
        """Error of the subject that ended the case early, if any."""
        answers = (self.exchange.answer, *(one.answer for one in self.exchange.readings))
        return next((one.fault for one in answers if one.fault), None)

    @property
    def verdict(self) -> Verdict:
        """Gravest verdict; NOT-COMPARED if nothing was compared, or if an error left something open."""
        gravest = worst(self.comparisons)
        return gravest if self.fault is None or gravest is Verdict.WRONG else Verdict.NOT_COMPARED

    @property
    def passes(self) -> bool:
        """Whether something was compared, nothing is WRONG, and nothing that a side has was left uncompared."""
        return self.verdict is not Verdict.NOT_COMPARED and all(one.passes for one in self.comparisons)

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Number of comparisons by verdict."""
        return Counter(comparison.verdict for comparison in self.comparisons)

    @cached_property
    def divergence(self) -> Divergence | None:
        """First divergence of the case, with what to check there; None if nothing is WRONG."""
        return first_divergence(self.comparisons, self.limits.ordinary)

    @property
    def explanation(self) -> Explanation | None:
        """Explanation of the first divergence; None if the one that was made is of another comparison."""
        first, found = self.divergence, self.exchange.explanation
        return found if first and found and found.what in ("", first.first.what, first.begins) else None

    @property
    def described(self) -> Description | None:
        """Description of the first divergence; None if none was made of it."""
        return self.exchange.described.get(self.divergence.first.what) if self.divergence else None

    @cached_property
    def loss(self) -> Mapping[str, float]:
        """Losses of the page if a budget is set and the subject answered to the end; see ``compare.budget``."""
        text = next((one for one in self.comparisons if one.what == "text"), None)
        if self.limits.budget is None or self.fault is not None or text is None:
            return {}
        return loss_of(self.exchange.answer, self.exchange.expected, text)

    @property
    def worst_error(self) -> float:
        """The largest relative error of a tensor."""
        return max((comparison.error for comparison in self.comparisons if comparison.error is not None), default=0.0)

    def of(self, *stages: str) -> tuple[Comparison, ...]:
        """Return the comparisons of stages: ``projector`` is ``STAGE.crops``, ``STAGE.page`` and ``STAGE.page/3``."""
        return tuple(one for one in self.comparisons if one.stage in stages)


def judge(exchange: CaseRun, limits: Tolerances) -> CaseReport:
    """Compare everything that the reference has and the subject offers; judge equal readings once."""
    answers = {id(one): one for one in (exchange.answer, *(one.answer for one in exchange.readings))}
    found = {name: (*compare_observations(one, exchange.expected, limits),) for name, one in answers.items()}
    if limits.budget is not None:
        allowed = limits.budget.allowed
        found = {name: tuple(on_budget(one, allowed) for one in of) for name, of in found.items()}
    if not exchange.readings:
        return CaseReport(exchange, found[id(exchange.answer)], limits)
    readings = Readings(exchange.readings, [found[id(one.answer)] for one in exchange.readings])
    return CaseReport(exchange, (*readings.summed(),), limits, readings)
