"""Stages of a case in the order of the data, each with its gravest verdict, for the page and the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from pytest_dsocr.base.words import MARGIN, count, shown
from pytest_dsocr.compare.verdict import SEVERITY, Reason, Verdict
from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.models import STAGE_NAMES, VISION
from pytest_dsocr.models.spec import DECODE, PREFILL, PREPROCESS, TOKENIZER
from pytest_dsocr.records.names import ComparisonName
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.comparison_result import ComparisonResult, number

OUTPUT = "postprocess"
OF_STAGE: Mapping[str, tuple[str, ...]] = {
    PREPROCESS: (GRID, *PIXELS),
    TOKENIZER: (*ROWS, "dtypes", "inputs"),
    PREFILL: (PREFILL, "prefill_best"),
    DECODE: ("logits", "tokens"),
    OUTPUT: ("text", "spans", "boxes", "read", "result.mmd", "artefacts"),
}
"""Comparisons by stage; a stage of vision has its seams."""
OF_COMPARISON = {what: stage for stage, found in OF_STAGE.items() for what in found}
SHORT: Mapping[str, str] = {
    **{"preprocess": "pre", "tokenizer": "tok", "projector": "proj", "vision_fusion": "fus"},
    **{"prefill": "pref", "decode": "dec", "postprocess": "out"},
}
"""Names for a terminal's line, which has 80 columns."""
MARKS: Mapping[str, tuple[str, str]] = {
    Verdict.MATCH: ("✓", "equal"),
    Verdict.DRIFT: ("~", "inside the limits"),
    Verdict.TIE_FLIP: ("≈", "a tie"),
    Verdict.WRONG: ("✗", "wrong"),
    Verdict.NOT_COMPARED: ("·", "not offered"),
}
"""A sign and words for each verdict, for readers who see no colours."""
LOST, ALLOWED = ("?", "not compared"), ("!", "outside the limits, and allowed")
CARRIED = ("↳", "wrong after a wrong stage: nothing shows a mistake of its own")
TOKENS = (PREFILL, DECODE)


@dataclass(frozen=True)
class StageBox:
    """A stage of one case."""

    stage: str
    comparisons: Sequence[ComparisonResult]
    is_allowed: bool
    """Whether the tests of the case allow what is WRONG."""
    is_carried: bool = False
    """Whether an earlier stage is wrong, and nothing shows a mistake in this one; see :func:`own_stages`."""

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict."""
        return max((one.verdict for one in self.comparisons), key=SEVERITY.index, default=Verdict.NOT_COMPARED)

    @property
    def mark(self) -> tuple[str, str]:
        """Sign of the stage, and words for it."""
        if self.verdict is Verdict.WRONG:
            return ALLOWED if self.is_allowed else CARRIED if self.is_carried else MARKS[Verdict.WRONG]
        is_lost = any(one.verdict is Verdict.NOT_COMPARED and not one.passes for one in self.comparisons)
        return LOST if is_lost else MARKS[self.verdict]

    @property
    def style(self) -> str:
        """Name of its style on the page."""
        return {ALLOWED: "allowed", CARRIED: "carried"}.get(self.mark, self.verdict)

    @property
    def error(self) -> float:
        """Largest relative error of the stage."""
        return max((number(one.error) for one in self.comparisons), default=0.0)

    @property
    def made(self) -> Sequence[ComparisonResult]:
        """The comparisons to show."""
        return [one for one in self.comparisons if one.reason is not Reason.NOT_OFFERED]


def stage_of(what: str, otherwise: str = OUTPUT) -> str:
    """Return the stage of a comparison, or ``otherwise`` if it is of no stage."""
    head = ComparisonName.parse(what).stage
    stage = OF_COMPARISON.get(head, head)
    return stage if stage in STAGE_NAMES else otherwise


def own_stages(case: CaseResult, wrong: Sequence[str]) -> set[str]:
    """Return the stages that are known to be wrong themselves, and not only by what an earlier one hands on.

    These are the first wrong one, those with a further cause, and the first that is still wrong with right tensors.
    ``wrong`` are all stages with a wrong comparison, in order.
    """
    causes = filter(None, (case.first_wrong, *(one.what for one in case.further)))
    still_wrong = {stage_of(what) for what, is_right in case.alone.items() if not is_right}
    parts = ([one for one in wrong if one in still_wrong & {*part}] for part in (VISION, TOKENS))
    return {*wrong[:1], *map(stage_of, causes), *(part[0] for part in parts if part)}


def boxes_of(case: CaseResult) -> list[StageBox]:
    """Return a box for each stage in which something might have been compared."""
    found: dict[str, list[ComparisonResult]] = {stage: [] for stage in STAGE_NAMES}
    for one in case.comparisons:
        found[stage_of(one.what)].append(one)
    boxes = [StageBox(stage, of, case.passes) for stage, of in found.items() if of]
    own = own_stages(case, [box.stage for box in boxes if box.verdict is Verdict.WRONG])
    return [replace(box, is_carried=box.stage not in own) for box in boxes]


def line_of(case: CaseResult) -> str:
    """Return a strip such as ``pre ✓ tok ✓ sam ✓ clip ✗ 4.2e-2``.

    The error is that of the first wrong stage, or else the largest drift.
    """
    boxes = boxes_of(case)
    wrong = (box for box in boxes if box.mark == MARKS[Verdict.WRONG])
    named = next(wrong, max(boxes, key=lambda box: box.error, default=None))
    error = f" {short_error(named.error)}" if named and named.error else ""
    return " ".join(
        f"{SHORT.get(box.stage, box.stage[:4])} {box.mark[0]}{error if box is named else ''}" for box in boxes
    )


def short_error(error: float) -> str:
    """Return an error such as ``4.2e-2``."""
    mantissa, _, exponent = f"{error:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def strips(cases: Sequence[CaseResult], most: int) -> Iterator[tuple[str, str, bool]]:
    """Yield label, strip and whether it fails; cases with the same marks share the line of the one with most error.

    Failing cases come first.
    """
    alike: dict[tuple[str, ...], list[CaseResult]] = {}
    for case in sorted(cases, key=lambda case: (case.passes, -number(case.worst_error))):
        alike.setdefault(tuple(box.mark[0] for box in boxes_of(case)), []).append(case)
    is_page = len({case.page for case in cases}) == len(cases)
    for first, *others in list(alike.values())[:most]:
        more = f" +{len(others)}" if others else ""
        name = PurePath(first.page).stem if is_page else first.id
        yield shown(name, MARGIN - 1 - len(more)) + more, line_of(first), not first.passes
    if left := sum(map(len, [*alike.values()][most:])):
        yield "", f"and {count(left, 'case')} more", False
