"""A server, asked each thing once, and the pages that it is asked for beside the run's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared

if TYPE_CHECKING:
    from pytest_dsocr.adapters.chat import Completion
    from pytest_dsocr.adapters.server import ServerSubject
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.reference_result import Step
    from pytest_dsocr.reference.protocol import Reference

ODD = ("plain", "turned", "repeated", "exactly_640", "641_wide", "tie", "between_grids")
"""Of the odd pages: a few words each, cut into no crops, two or three."""
BLANK_PX = {"strip": (2800, 400), "blank": (600, 600)}
"""A page of seven crops in a row, which rules of fewer cut otherwise; one as large as the odd page ``plain``."""
FREE = "<image>Free OCR."
"""Of a model that has no such prompt; what it has for whole pages it may read nothing by on these."""
SOME, MANY = 7, 40
"""Ceilings of tokens that the run's first page does not end in front of."""
SHOWN, TOP = 4, 10
NO_TEXT = "a text of these pages"


@dataclass(frozen=True)
class Asked:
    """Asks a server; what is asked again is answered as before."""

    server: ServerSubject
    cases: Sequence[Case]
    reference: Reference
    tokenizer: TextTokenizer
    limits: Tolerances
    folder: Path
    answers: dict[str, Completion] = field(default_factory=dict)

    @property
    def first(self) -> Case:
        return self.cases[0]

    @cached_property
    def odd(self) -> dict[str, Case]:
        """The odd pages by name, in the first case's preset, and with the prompt for free OCR where offered."""
        from ..contract.asked import Drawn
        from ..contract.odd_pages import ODD_PAGES

        prompts, offered = self.first.family.prompts, self.server.prompts
        prompt = prompts.get("free", FREE) if offered is None or "free" in offered else self.first.prompt
        pages = {name: ODD_PAGES[name].case(name, self.folder, self.first.family).page for name in ODD}
        pages |= {name: Drawn(self.folder).blank(*size) for name, size in BLANK_PX.items()}
        return {name: replace(self.first, page=page, prompt=prompt) for name, page in pages.items()}

    @property
    def short(self) -> list[Case]:
        """Pages of a few tokens, each other than the next."""
        return [self.odd[name] for name in ("plain", "turned", "641_wide", "tie")]

    def __call__(self, case: Case, most: int = MANY, **how: Any) -> Completion:
        """Ask for ``case`` up to ``most`` tokens; see ``ServerSubject.ask`` for ``how``."""
        key = json.dumps([str(case.page), case.prompt, case.preset.name, most, how], default=str)
        if key not in self.answers:
            from pytest_dsocr.subjects.calls import at_stage

            with at_stage("read", "ask"):
                self.answers[key] = self.server.ask(replace(case, max_new_tokens=most), **how)
        return self.answers[key]

    def with_logprobs(self, case: Case, most: int = MANY, **how: Any) -> Completion:
        """Ask for the best tokens of each step as well, where the server takes that."""
        from pytest_dsocr.adapters.chat import StatusError

        try:
            return self(case, most, logprobs=True, top_logprobs=TOP, **how)
        except StatusError:
            return self(case, most, **how)

    @cached_property
    def steps(self) -> Sequence[Step]:
        """What the reference chose on the first page, and from what."""
        return self.reference.observe(self.first).steps

    def text_of(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens).strip()


def judged(what: str, faults: Sequence[str], right: str, check: str) -> Comparison:
    """Return MATCH with ``right`` where there are no faults, else WRONG with the first, and with what to check."""
    if not faults:
        return Comparison(what, Verdict.MATCH, right)
    return Comparison(what, Verdict.WRONG, faults[0], None, (f"check: {check}", *faults[1 : SHOWN + 1]))


def not_offered(what: str, why: str) -> Comparison:
    return not_compared(what, Reason.NOT_OFFERED, f"not offered: {why}")


def apart(what: str, actual: Completion, expected: Completion) -> list[str]:
    """Say where two answers that should be equal differ: one fault, or none."""
    one, other = actual.text.strip(), expected.text.strip()
    if one == other:
        return []
    at = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return [f"{what}: {one[at : at + 24]!r} at character {at}, expected {other[at : at + 24]!r}"]
