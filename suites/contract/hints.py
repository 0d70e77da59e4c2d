"""What a wrong fact of the contract resembles: inputs are made again under the known mistakes of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.presets import Grid, Tiling
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.models.spec import ModelSpec

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dsocr.explain.mistake import Mistake

Size = tuple[int, int]
MOST, OR = 3, ", or "
"""The most mistakes that are named which reproduce the subject's inputs."""


def hinted(compared: Comparison, hints: Callable[[], Iterator[str]]) -> Comparison:
    """Add the first of ``hints`` to a comparison that is wrong; they are looked for only then."""
    hint = next(hints(), None) if compared.verdict is Verdict.WRONG else None
    return replace(compared, details=(f"check: {hint}", *compared.details)) if hint else compared


def _resembling(among: Iterable[Mistake], make: Callable[[], Any], actual: Any) -> Iterator[str]:
    """Yield the mistakes with which the contract makes the subject's inputs."""
    from pytest_dsocr.explain.planted import in_contract

    ways = []
    for one in among:
        with in_contract(one):
            ways += [one.words] if make() == actual else []
    if ways:
        yield f"whether it comes of {OR.join(ways[:MOST])}"


def of_grid(actual: Mapping[Size, Grid], tiling: Tiling) -> Iterator[str]:
    """Yield the rules that lead to all of these grids, by the size of the page; of two mistakes where no one does."""
    from pytest_dsocr.explain.catalogue.pixels import GRIDS, nearest

    def leads(rule: Callable[..., Grid], **how: Any) -> bool:
        return all(rule(*size, tiling, **how) == grid for size, grid in actual.items())

    rules = [(words.replace("{crop}", str(tiling.crop_px)), rule) for words, rule in GRIDS.values()]
    ways = [words for words, rule in rules if leads(rule)]
    known = [(words, rule.keywords) for words, rule in rules if isinstance(rule, partial)]
    ways = ways or [
        f"{first}, and {second}"
        for (first, one), (second, other) in combinations(known, 2)
        if not one.keys() & other.keys() and leads(nearest, **one, **other)
    ]
    if ways:
        yield f"whether it comes of {OR.join(ways[:MOST])}"


def of_count(page: Path, actual: int, tokenizer: TextTokenizer, family: ModelSpec) -> Iterator[str]:
    """Yield the mistakes under which a page in Gundam has this number of image tokens."""
    from pytest_dsocr.explain.catalogue import groups

    def make() -> int:
        cut = family.default_preset
        ids: list[int] = family.prepare(page, "markdown", cut, tokenizer).input_ids[0].tolist()
        return ids.count(tokenizer.special.image)

    yield from _resembling((one for one in groups(family)["prompt"] if one.kind == "counts"), make, actual)


def of_prompt(actual: Sequence[int], text: str, tokenizer: TextTokenizer, family: ModelSpec) -> Iterator[str]:
    """Yield how a prompt's ids were made, where they are not the vendor's; how many an image has is left aside."""
    from PIL import Image

    from pytest_dsocr.explain.catalogue import groups

    page, image = Image.new("RGB", (64, 64)), tokenizer.special.image

    def make() -> Any:
        return family.prepare(page, text, family.quickest, tokenizer).input_ids[0].tolist()

    def once(ids: Sequence[int]) -> list[int]:
        return [one for at, one in enumerate(ids) if one != image or not at or ids[at - 1] != image]

    among = (one for one in groups(family)["prompt"] if one.kind not in ("prompt", "preset", "counts"))
    yield from _resembling(among, lambda: once(make()), once(actual))
