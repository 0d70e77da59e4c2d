"""Sizes that separate all wrong pages from all right ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import comb

from pytest_dsocr.compare.readings import SURE
from pytest_dsocr.records.page_measures import PageMeasures
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.cause import FailureCause
from pytest_dsocr.report.outcomes import FAILING, TestResult

SIZES: Mapping[str, Callable[[PageMeasures], int]] = {
    "tokens in the prompt": lambda page: page.prompt_tokens,
    "crops": lambda page: page.crops,
    "pixels in width": lambda page: page.width_px,
    "pixels in height": lambda page: page.height_px,
    "positions": lambda page: page.positions,
}
"""Sizes on which a computation may depend. New tokens are none: long texts show small mistakes first."""


def separation(cause: FailureCause, cases: Sequence[CaseResult], tests: Iterable[TestResult]) -> str:
    """Return the sizes in which all pages of a cause exceed all right pages; empty if chance may separate as many.

    Odd pages count like the run's own. Pages that are wrong for another cause do not count.
    """
    seen = [(case.page, case.measures, case.id in cause.cases, case.passes) for case in cases]
    odd = [one for one in tests if one.has_compared]
    seen += [(one.nodeid, one.sent.page, one.nodeid in cause.tests, one.outcome not in FAILING) for one in odd]
    wrong = [(name, page) for name, page, is_wrong, _ in seen if page and is_wrong]
    right = [(name, page) for name, page, is_wrong, passes in seen if page and passes and not is_wrong]
    of_wrong, of_all = ({name for name, _ in pages} for pages in (wrong, wrong + right))
    if len(SIZES) / comb(len(of_all), len(of_wrong)) > 1 - SURE:
        return ""
    found = [*_separating([page for _, page in wrong], [page for _, page in right])]
    least, most = (", ".join(words) for words in zip(*found, strict=True)) if found else ("", "")
    return (
        least and f"the {len(of_wrong)} wrong of {len(of_all)} pages have at least {least}; right ones at most {most}"
    )


def _separating(wrong: Sequence[PageMeasures], right: Sequence[PageMeasures]) -> Iterator[tuple[str, str]]:
    """Yield the least size of wrong pages, and the largest of right pages, if it is smaller."""
    for name, size in SIZES.items():
        least, largest = min(map(size, wrong)), max(map(size, right))
        if least > largest:
            yield f"{least:,} {name}", f"{largest:,}"
