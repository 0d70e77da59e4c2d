"""Hints for wrong inputs: known mistakes that reproduce the subject's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.models.spec import ModelSpec

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dsocr.describe.ids import Vocabulary
    from pytest_dsocr.explain.mistake import Mistake

Size = tuple[int, int]
MOST, OR = 3, ", or "
"""Number of mistakes to name at most, and the words between them."""


def hinted(compared: Comparison, hints: Callable[[], Iterator[str]]) -> Comparison:
    """Add the first hint to a comparison that is WRONG; hints are searched only then."""
    hint = next(hints(), None) if compared.verdict is Verdict.WRONG else None
    return replace(compared, details=(f"check: {hint}", *compared.details)) if hint else compared


def _resembling(
    among: Iterable[Mistake], make: Callable[[], Any], actual: Any, described: str = "what makes it"
) -> Iterator[str]:
    """Yield the known mistakes among these that reproduce the subject's inputs; without any, a description of these."""
    from pytest_dsocr.explain.planted import in_contract

    ways, every = [], [*among]
    for one in every:
        with in_contract(one):
            ways += [one.words] if make() == actual else []
    yield _said(ways, len(every), described)


def _said(ways: Sequence[str], tried: int, described: str = "what makes it") -> str:
    """Return the hint of a search: the mistakes that it found, or a description and the number of those refuted."""
    if ways:
        return f"whether the cause is {OR.join(ways[:MOST])}"
    return f"{described}, as none of {count(tried, 'known mistake')} gives the same"


def of_ids(actual: Sequence[int], expected: Sequence[int], vocabulary: Vocabulary) -> Iterator[str]:
    """Yield how ids differ from the expected ones."""
    from pytest_dsocr.describe import ids
    from pytest_dsocr.describe.simplest import simplest

    if found := simplest(ids.of_ids(actual, expected, vocabulary)):
        yield found.text


def of_grid(actual: Mapping[Size, Grid], preset: Preset) -> Iterator[str]:
    """Yield the wrong rules that lead to all of these grids, or pairs of mistakes if no single rule does.

    If none does, the hint is their number: no other hint then names what was refuted.
    """
    yield _grids_said(frozenset(actual.items()), preset)


@cache
def _grids_said(actual: frozenset[tuple[Size, Grid]], preset: Preset) -> str:
    from pytest_dsocr.describe.ids import of_rule
    from pytest_dsocr.explain.catalogue.grids import GRIDS, nearest

    tiling = preset.tiling

    def leads(rule: Callable[..., Grid], **how: Any) -> bool:
        return all(rule(*size, tiling, **how) == grid for size, grid in actual)

    rules = [(words.replace("{crop}", str(tiling.crop_px)), rule) for words, rule in GRIDS.values()]
    ways = [words for words, rule in rules if leads(rule)]
    known = [(words, rule.keywords) for words, rule in rules if isinstance(rule, partial)]
    ways = ways or [
        f"{first}, and {second}"
        for (first, one), (second, other) in combinations(known, 2)
        if not one.keys() & other.keys() and leads(nearest, **one, **other)
    ]
    found = None if ways else next(of_rule(dict(actual), preset), None)
    return _said(ways, len(rules), found.text if found else "what makes it")


def of_count(page: Path, actual: int, tokenizer: TextTokenizer, family: ModelSpec) -> Iterator[str]:
    """Yield the known mistakes that give a page in Gundam this number of image tokens."""
    from pytest_dsocr.explain.catalogue import groups

    def make() -> int:
        cut = family.default_preset
        ids: list[int] = family.prepare(page, "markdown", cut, tokenizer).input_ids[0].tolist()
        return ids.count(tokenizer.special.image)

    yield from _resembling((one for one in groups(family)["prompt"] if one.kind == "counts"), make, actual)


def of_prompt(
    actual: Sequence[int], expected: Sequence[int], text: str, vocabulary: Vocabulary, family: ModelSpec
) -> Iterator[str]:
    """Yield the known mistakes that give a prompt these ids, whatever the number of image tokens.

    Without any, the hint is how the ids differ from the expected ones.
    """
    from PIL import Image

    from pytest_dsocr.explain.catalogue import groups

    tokenizer = vocabulary.tokenizer
    page, image = Image.new("RGB", (64, 64)), tokenizer.special.image
    described = next(of_ids(actual, expected, vocabulary), "what makes them")

    def make() -> Any:
        return family.prepare(page, text, family.quickest, tokenizer).input_ids[0].tolist()

    def once(ids: Sequence[int]) -> list[int]:
        return [one for at, one in enumerate(ids) if one != image or not at or ids[at - 1] != image]

    among = (one for one in groups(family)["prompt"] if one.kind not in ("prompt", "preset", "counts"))
    yield from _resembling(among, lambda: once(make()), once(actual), described)
