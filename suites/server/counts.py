"""Whether the server counts the tokens that each page must have: with six crops in place of nine there are fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.presets import Grid, Preset, image_token_count

from .asked import MANY, SHOWN, SOME, Asked, judged, not_offered

if TYPE_CHECKING:
    from pytest_dsocr.observation.case import Case

NEAR = 16
"""Tokens that a template may add beside those of a prompt without an image."""


class Counted(NamedTuple):
    """A page, and the tokens of its prompt as the server counts them."""

    name: str
    size: tuple[int, int]
    """Width and height in pixels, upright."""
    preset: Preset
    text: int
    """Tokens of the prompt beside the image's, the BOS among them."""
    actual: int

    def by(self, preset: Preset, rule: Callable[..., Grid] | None = None) -> int:
        """Count the tokens in a preset, with its own rule of grids or another."""
        grid = rule(*self.size) if rule and preset.crop else preset.grid(*self.size)
        return self.text + image_token_count(preset, grid)

    @property
    def expected(self) -> int:
        """As the vendor's code counts them."""
        return self.by(self.preset)


def prompt_tokens(asked: Asked) -> Comparison:
    """Compare the count of every page of the run, and of odd ones."""
    from pytest_dsocr.adapters.chat import RefusedError

    what, cases = "usage/prompt_tokens", [*asked.cases, *asked.odd.values()]
    pages = [page for case in cases if (page := _counted(asked, case))]
    if len(pages) < len(cases):
        return not_offered(what, "usage.prompt_tokens")
    text = asked.first.prompt.replace("<image>", "").strip()
    try:
        bare = asked(asked.first, 1, messages=[{"role": "user", "content": text}]).prompt_tokens
    except RefusedError:
        bare = None
    return compare_counts(what, pages, 0 if bare is None else bare - len(asked.tokenizer.encode(text)) - 1)


def _counted(asked: Asked, case: Case) -> Counted | None:
    counted = asked(case, 1).prompt_tokens
    text = 1 + sum(len(asked.tokenizer.encode(piece)) for piece in case.prompt.strip().split("<image>"))
    return None if counted is None else Counted(case.id, load_image(case.page).size, case.preset, text, counted)


def compare_counts(what: str, pages: Sequence[Counted], bare: int) -> Comparison:
    """Compare counts, but for a number of tokens that is the same on every page and near ``bare``.

    Args:
        what: the comparison's name.
        pages: with their counts.
        bare: how many tokens more than the vendor's code has the server counts of a prompt without an image.
    """
    [(offset, _), *others] = Counter(page.actual - page.expected for page in pages).most_common()
    if not others and abs(offset - bare) <= NEAR:
        beside = f", each {offset:+d} by the server's template" if offset else ""
        return Comparison(what, Verdict.MATCH, f"those of {len(pages)} pages{beside}")
    offset = offset if abs(offset - bare) <= NEAR else bare
    wrong = [page for page in pages if page.actual - offset != page.expected]
    ways = [*_ways(pages, bare)]
    check = f"whether it comes of {', or '.join(ways[:SHOWN])}" if ways else "how the server counts an image"
    return judged(what, [_fault(page, offset) for page in wrong], "", check)


def _fault(page: Counted, offset: int) -> str:
    preset = page.preset
    counted = page.actual - offset
    grids = [one for one in ((1, 1), *preset.tiling.grids) if page.text + image_token_count(preset, one) == counted]
    of = f", that of a grid of {' or '.join(f'{columns} x {rows}' for columns, rows in grids)}" if grids else ""
    beside = f", and the server's template {offset:+d}" if offset else ""
    return f"{page.name}: {page.actual} counted{of}; the vendor's code has {page.expected}{beside}"


def _ways(pages: Sequence[Counted], bare: int) -> Iterator[str]:
    """Yield the mistakes under which every page has its count, but for one number of tokens near ``bare``."""
    from pytest_dsocr.explain.catalogue.pixels import GRIDS
    from pytest_dsocr.families import DEFAULT

    def leads(count: Callable[[Counted], int]) -> bool:
        differences = {page.actual - count(page) for page in pages}
        return len(differences) == 1 and abs(differences.pop() - bare) <= NEAR

    if leads(lambda page: page.text):
        yield "a count without the image"
    for preset in DEFAULT.presets.values():
        if leads(lambda page: page.by(preset)):  # noqa: B023 - called at once
            yield f"the preset {preset.name}"
    for words, rule in GRIDS.values():
        if leads(lambda page: page.by(page.preset, rule)):  # noqa: B023
            yield words


def usage(asked: Asked) -> Comparison:
    """Compare what it counts of an answer with the tokens of its text, which may end with an EOS, and with the sum."""
    what, pages = "usage/completion_tokens", [*asked.short, asked.first]
    faults = []
    for case in pages:
        answer = asked(case, MANY)
        if answer.completion_tokens is None:
            return not_offered(what, "usage.completion_tokens")
        written = len(asked.tokenizer.encode(answer.text.strip()))
        if answer.completion_tokens not in range(written, written + 3):
            faults.append(f"{case.id}: {answer.completion_tokens} of a text of {written}")
        if answer.total_tokens not in (None, (answer.prompt_tokens or 0) + answer.completion_tokens):
            faults.append(f"{case.id}: total_tokens {answer.total_tokens} is not the sum of both")
    return judged(what, faults, f"those of {len(pages)} texts", "which tokens are counted")


def max_tokens(asked: Asked) -> Comparison:
    """Compare an answer that ends at its ceiling with the reference's first tokens, and what is counted of it."""
    faults, known = [], [step.token for step in asked.steps]
    agrees = asked(asked.first).text.strip() == asked.text_of(known[:MANY])
    for most in (1, SOME):
        answer = asked(asked.first, most)
        if answer.completion_tokens not in (None, most):
            faults.append(f"max_tokens {most}: {answer.completion_tokens} tokens counted")
        if agrees and answer.text.strip() != (text := asked.text_of(known[:most])):
            faults.append(f"max_tokens {most}: {answer.text!r}, expected {text!r}")
    return judged("max_tokens", faults, f"1 and {SOME} kept", "whether the first token counts as one")


def finish_reason(asked: Asked) -> Comparison:
    """Compare why answers ended with why they must have."""
    expected = {f"{SOME} tokens of {asked.first.id}": (asked(asked.first, SOME), "length")}
    answers = [(case.id, asked(case, MANY)) for case in asked.short]
    whole = [one for one in answers if len(asked.tokenizer.encode(one[1].text)) < MANY - 2]
    expected |= {name: (answer, "stop") for name, answer in whole}
    if not any(answer.ended_by for answer, _ in expected.values()):
        return not_offered("finish_reason", "finish_reason")
    faults = [
        f"{name}: {one.ended_by!r}, expected {why!r}" for name, (one, why) in expected.items() if one.ended_by != why
    ]
    return judged("finish_reason", faults, "length and stop", "what ends an answer; pages are cut off unseen by it")
