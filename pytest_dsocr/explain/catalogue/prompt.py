"""Mistakes of the prompt: its text, its ids, how many of them stand for an image, and the mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.contract import inputs, presets
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.contract.prompt import IMAGE, TextTokenizer, prompt_ids, split_at_images
from pytest_dsocr.explain.mistake import Bench, Group
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.families.family import Family

Ids = tuple[list[int], list[bool]]
"""A prompt's ids, and the mask of its image's tokens."""


SIGNS = {
    Sign.NO_BOS: ("no-bos",),
    Sign.EMPTINESS: ("no-bos",),
    Sign.TWO_BOS: ("two-bos",),
    Sign.IDS_REORDERED: ("image-last", "text-first"),
    Sign.BEHIND_IMAGE: ("trailing-space", "added", "prompt-free"),
    Sign.MASK_TOO_EARLY: ("mask-early",),
    Sign.ONE_TOKEN_FEWER: ("one-fewer", "counts-no-separator"),
    Sign.OTHER_COUNT: ("counts-each-crop", "counts-exchanged", "counts-base-page"),
}


def prompt_mistakes() -> Group:
    """Make those of the prompt."""
    group = Group("prompt", SIGNS)
    group.rows("", BUILT, _after)
    group.rows("", TEXTS, _text)
    group.add("not-stripped", "the prompt not stripped", _raw)
    prompts = {key: (repr(prompt), prompt) for key, prompt in DEFAULT.prompts.items()}
    group.rows("prompt-", prompts, _other_prompt, words="the prompt {} in place of the one asked for")
    nearest = {"nearest": ("the preset nearest to the sizes asked for", _nearest)}
    group.rows("preset-", nearest, lambda on, choose: on.changes.set(Family, "preset", choose))
    group.rows("counts-", COUNTS, _counts)
    return group


def _image(mask: list[bool]) -> tuple[int, int]:
    return (mask.index(True), len(mask) - mask[::-1].index(True)) if True in mask else (0, 0)


def _reordered(ids: list[int], mask: list[bool], order: Callable[[list[Any], int, int], list[Any]]) -> Ids:
    first, behind = _image(mask)
    return order(ids, first, behind), order(mask, first, behind)


def _one_fewer(ids: list[int], mask: list[bool], special: Any) -> Ids:
    first, _ = _image(mask)
    return ids[:first] + ids[first + 1 :], mask[:first] + mask[first + 1 :]


Built = Callable[[list[int], list[bool], Any], Ids]
"""Changes ids and mask; of a tokenizer's special ids."""
BUILT: dict[str, tuple[str, Built]] = {
    "no-bos": ("no BOS in front of the prompt", lambda ids, mask, special: (ids[1:], mask[1:])),
    "two-bos": ("two BOS in front of the prompt", lambda ids, mask, special: ([special.bos, *ids], [False, *mask])),
    "eos": ("an EOS behind the prompt", lambda ids, mask, special: ([*ids, special.eos], [*mask, False])),
    "image-last": (
        "the image behind the text",
        lambda ids, mask, special: _reordered(ids, mask, lambda x, first, end: x[:first] + x[end:] + x[first:end]),
    ),
    "mask-early": ("the image's mask one place too early", lambda ids, mask, special: (ids, [*mask[1:], False])),
    "one-fewer": ("one image token fewer", _one_fewer),
    "ids-pad": (
        "pads in the place of the image's tokens",
        lambda ids, mask, special: (
            [special.pad if image else one for one, image in zip(ids, mask, strict=True)],
            mask,
        ),
    ),
    "no-mask": ("no image tokens in the mask", lambda ids, mask, special: (ids, [False] * len(mask))),
}


def _after(on: Bench, change: Built) -> None:
    build = prompt_ids

    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> Ids:
        return change(*build(pieces, counts, tokenizer), tokenizer.special)

    on.changes.set(inputs, "prompt_ids", made)
    on.changes.set(inputs, "check_inputs", lambda *_: None)


Rendered = Callable[[list[str]], list[str]]
"""Changes the pieces of a prompt's text, one more than its images."""


def _each(change: Callable[[str], str]) -> Rendered:
    return lambda pieces: [pieces[0], *map(change, pieces[1:])]


def _last(change: Callable[[str], str]) -> Rendered:
    return lambda pieces: [*pieces[:-1], change(pieces[-1])]


def _around(front: str, behind: str) -> Rendered:
    return lambda pieces: [front + pieces[0], *pieces[1:-1], pieces[-1] + behind]


TEXTS: dict[str, tuple[str, Rendered]] = {
    "no-newline": ("no newline between image and prompt", _each(lambda one: one.removeprefix("\n"))),
    "trailing-space": ("a space behind the prompt", _last(lambda one: one + " ")),
    "added": ("a sentence added behind the prompt", _last(lambda one: one + " Only output the raw text.")),
    "stripped": ("each piece of the prompt stripped", lambda pieces: [one.strip() for one in pieces]),
    "text-first": ("the text in front of the image", lambda pieces: [pieces[-1].strip() + "\n", *pieces[1:-1], ""]),
    "roles-deepseek": (
        "the roles of DeepSeek's chat around the prompt",
        _around("<｜User｜>: ", "\n\n<｜Assistant｜>:"),
    ),
}


def _text(on: Bench, change: Rendered) -> None:
    split = split_at_images
    on.changes.set(inputs, "split_at_images", lambda prompt, images: change(split(prompt, images)))


def _raw(on: Bench) -> None:
    on.changes.set(inputs, "split_at_images", lambda prompt, images: prompt.split(IMAGE))


def _other_prompt(on: Bench, prompt: str) -> None:
    on.changes.set(inputs, "split_at_images", lambda _, images: split_at_images(prompt, images))


def _nearest(_: Family, own: Preset) -> Preset:
    return min(DEFAULT.presets.values(), key=lambda one: (one.crop != own.crop, abs(one.view_size - own.view_size)))


Counted = Callable[[Preset, Grid], int]
Part = Callable[[int, Grid], int]
"""Counts the tokens of the page, or of the crops, of a side of tokens and a grid."""


def _page(side: int, grid: Grid) -> int:
    return DEFAULT.layout.page_tokens(side)


def _sum(page: Part = _page, crops: Part = DEFAULT.layout.crop_tokens, page_px: str = "", crop_px: str = "") -> Counted:
    """Count by other parts than the vendor's, or by other sizes of a preset."""

    def count(preset: Preset, grid: Grid) -> int:
        whole = getattr(preset, page_px or "view_size")
        crop = getattr(preset, crop_px or "image_size")
        of_page = page(presets.tokens_per_side(whole), grid)
        return of_page + (crops(presets.tokens_per_side(crop), grid) if grid[0] * grid[1] > 1 else 0)

    return count


COUNTS: dict[str, tuple[str, Counted]] = {
    "no-separator": ("no token counted for the separator", _sum(page=lambda s, g: s * (s + 1))),
    "each-crop": ("newlines counted for each crop by itself", _sum(crops=lambda s, g: s * (s + 1) * g[0] * g[1])),
    "exchanged": (
        "newlines counted by columns, not by rows",
        _sum(crops=lambda s, g: DEFAULT.layout.crop_tokens(s, (g[1], g[0]))),
    ),
    "base-page": ("the page's tokens counted by image_size in place of base_size", _sum(page_px="image_size")),
}


def _counts(on: Bench, count: Counted) -> None:
    on.changes.set(inputs, "image_token_count", count)
    on.changes.set(inputs, "check_inputs", lambda *_: None)
