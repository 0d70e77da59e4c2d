"""Answers of a server, each requested once, and the pages of these requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared

if TYPE_CHECKING:
    from pytest_dsocr.adapters.completion import Completion
    from pytest_dsocr.adapters.server import ServerSubject
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.reference_result import Step
    from pytest_dsocr.reference.protocol import Reference

ODD = ("plain", "turned", "repeated", "exactly_640", "641_wide", "tie", "between_grids")
"""Odd pages to read: a few words each, with no crops, two or three."""
BLANK_PX = {"strip": (2800, 400), "blank": (600, 600)}
"""Blank pages: ``strip`` has seven crops in a row, which other rules change; ``blank`` is as large as ``plain``."""
FREE = "<image>Free OCR."
"""Prompt for odd pages if the model names none; its prompt for whole pages may read nothing on them."""
SOME, MANY = 7, 40
"""Limits of new tokens that the text of the run's first page reaches."""
SHOWN, TOP = 4, 10
NO_TEXT = "any text on these pages"


@dataclass(frozen=True)
class Asked:
    """Answers of a server; a repeated question returns the first answer."""

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
        """Cases of the odd pages by name, in the first case's preset and with the prompt for free OCR if offered."""
        from ..contract.asked import Drawn
        from ..contract.odd_pages import ODD_PAGES

        prompts, offered = self.first.family.prompts, self.server.prompts
        prompt = prompts.get("free", FREE) if offered is None or "free" in offered else self.first.prompt
        pages = {name: ODD_PAGES[name].case(name, self.folder, self.first.family).page for name in ODD}
        pages |= {name: Drawn(self.folder).blank(*size) for name, size in BLANK_PX.items()}
        return {name: replace(self.first, page=page, prompt=prompt) for name, page in pages.items()}

    @property
    def short(self) -> list[Case]:
        """Four pages of a few tokens with different texts."""
        return [self.odd[name] for name in ("plain", "turned", "641_wide", "tie")]

    def __call__(self, case: Case, most: int = MANY, **how: Any) -> Completion:
        """Return the answer to ``case`` of up to ``most`` tokens; see ``ServerSubject.ask`` for ``how``."""
        key = json.dumps([str(case.page), case.prompt, case.preset.name, most, how], default=str)
        if key not in self.answers:
            from pytest_dsocr.subjects.calls import at_stage

            with at_stage("read", "ask"):
                self.answers[key] = self.server.ask(replace(case, max_new_tokens=most), **how)
        return self.answers[key]

    def with_logprobs(self, case: Case, most: int = MANY, **how: Any) -> Completion:
        """Return the answer with the best tokens of each step, or without if the server refuses that."""
        from pytest_dsocr.adapters.completion import StatusError

        try:
            return self(case, most, logprobs=True, top_logprobs=TOP, **how)
        except StatusError:
            return self(case, most, **how)

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The reference's steps on the first page."""
        return self.reference.observe(self.first).steps

    def text_of(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens).strip()


def judged(what: str, faults: Sequence[str], right: str, check: str) -> Comparison:
    """Return MATCH with ``right`` if there are no faults, else WRONG with the first fault and a hint."""
    if not faults:
        return Comparison(what, Verdict.MATCH, right)
    return Comparison(what, Verdict.WRONG, faults[0], None, (f"check: {check}", *faults[1 : SHOWN + 1]))


def not_offered(what: str, why: str) -> Comparison:
    return not_compared(what, Reason.NOT_OFFERED, f"not offered: {why}")


def apart(what: str, actual: Completion, expected: Completion) -> list[str]:
    """Return the first difference of two answers that should be equal, if any."""
    one, other = actual.text.strip(), expected.text.strip()
    if one == other:
        return []
    at = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return [f"{what}: {one[at : at + 24]!r} at character {at}, expected {other[at : at + 24]!r}"]
