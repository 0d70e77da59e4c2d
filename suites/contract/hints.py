"""What a wrong fact of the contract resembles: inputs are made again under the known mistakes of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.presets import Grid, Preset, crop_grid
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.families import DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

CUT = DEFAULT.preset(DEFAULT.default_preset)
MOST = 3
"""The most mistakes that are named which reproduce the subject's inputs."""
SAME_LEVEL = 2.0**-8
"""Pixels from -1 to 1 that differ by less come of the same of 255 levels."""
NEARER = 0.5
"""A mistake explains pixels that are nearer to its own than to the vendor's by this factor."""
OF_VIEWS = ("pixels.opened-", "pixels.squashed", "pixels.not-squashed", "pixels.size-", "pixels.bars-")


def hinted(compared: Comparison, hints: Callable[[], Iterator[str]]) -> Comparison:
    """Add the first of ``hints`` to a comparison that is wrong; they are looked for only then."""
    hint = next(hints(), None) if compared.verdict is Verdict.WRONG else None
    return replace(compared, details=(f"check: {hint}", *compared.details)) if hint else compared


def _under(begins: str | tuple[str, ...], make: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """Yield the words of each mistake of inputs whose id begins so, and what the contract makes with it."""
    from pytest_dsocr.explain.catalogue import mistakes
    from pytest_dsocr.explain.planted import in_contract

    for one in mistakes().values():
        if one.id.startswith(begins):
            with in_contract(one):
                made = make()
            yield one.words, made


def _resembling(begins: str | tuple[str, ...], make: Callable[[], Any], actual: Any) -> Iterator[str]:
    """Yield the mistakes under which the contract makes the subject's inputs."""
    if ways := [words for words, made in _under(begins, make) if made == actual]:
        yield f"whether it comes of {', or '.join(ways[:MOST])}"


def of_grid(size_px: tuple[int, int], actual: Grid) -> Iterator[str]:
    """Yield what leads to this grid of a page of this size, where it is not the vendor's."""
    if actual != crop_grid(*size_px, DEFAULT.tiling):
        yield from _resembling("pixels.grid-", lambda: CUT.grid(*size_px), actual)


def of_count(page: Path, actual: int, tokenizer: TextTokenizer) -> Iterator[str]:
    """Yield the mistakes under which a page in Gundam has this number of image tokens."""

    def make() -> int:
        ids: list[int] = DEFAULT.prepare(page, "markdown", CUT, tokenizer).input_ids[0].tolist()
        return ids.count(tokenizer.special.image)

    yield from _resembling("prompt.counts-", make, actual)


def of_pixels(
    what: str, actual: Tensor, vendors: Tensor, page: Path, preset: str | Preset, tokenizer: TextTokenizer
) -> Iterator[str]:
    """Yield what makes a view ``[N, 3, V, V]`` differ from the vendor's of the same shape."""
    if actual.shape != vendors.shape:
        return
    found, right = actual.float().cpu(), vendors.float()
    if (found - right).abs().max() < SAME_LEVEL:
        name = str(actual.dtype).removeprefix("torch.")
        yield f"the rounding: they are the vendor's levels in {name}; infer rounds pixels to bf16"
        return
    limit, nearest = float((found - right).abs().mean()) * NEARER, ""
    for words, view in _under(OF_VIEWS, lambda: getattr(DEFAULT.prepare(page, "markdown", preset, tokenizer), what)):
        if view.shape == found.shape and (apart := float((view.float() - found).abs().mean())) < limit:
            limit, nearest = apart, words
    if nearest:
        yield f"whether it comes of {nearest}"


def of_prompt(actual: Sequence[int], text: str, tokenizer: TextTokenizer) -> Iterator[str]:
    """Yield how a prompt's ids were made, where they are not the vendor's; how many an image has is left aside."""
    from PIL import Image

    from pytest_dsocr.explain.catalogue.prompt import BUILT, TEXTS

    page, image = Image.new("RGB", (64, 64)), tokenizer.special.image

    def make() -> Any:
        return DEFAULT.prepare([page], text, "tiny", tokenizer).input_ids[0].tolist()

    def once(ids: Sequence[int]) -> list[int]:
        return [one for at, one in enumerate(ids) if one != image or not at or ids[at - 1] != image]

    rows = (*TEXTS, *BUILT, "not-stripped", "encoded-whole", "special-as-text")
    yield from _resembling(tuple(f"prompt.{row}" for row in rows), lambda: once(make()), once(actual))
