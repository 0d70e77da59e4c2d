"""Mistakes of the prompt: its text, its ids, the number of image tokens, and the mask."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract import inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE, SpecialTokens, TextTokenizer, prompt_ids, split_at_images
from pytest_dsocr.explain.catalogue.counts import plant_count, token_counts
from pytest_dsocr.explain.mistake import Mistake, Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, kin
from pytest_dsocr.models.spec import ModelSpec

PromptIds = tuple[list[int], list[bool]]
"""Ids of a prompt, and the mask of its image tokens."""


SIGNS = {
    Symptom.NO_BOS: ("no-bos",),
    Symptom.TWO_BOS: ("two-bos",),
    Symptom.IDS_REORDERED: ("image-last", "text-first"),
    Symptom.BEHIND_IMAGE: ("trailing-space", "added", "prompt-free"),
    Symptom.MASK_TOO_EARLY: ("mask-early",),
    Symptom.ONE_TOKEN_FEWER: ("one-fewer", "counts-no-separator"),
    Symptom.OTHER_COUNT: ("counts-each-crop", "counts-exchanged", "counts-base-page"),
}


def prompt_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes of the prompt."""
    group, written = Group("prompt", SIGNS), "".join(family.prompts.values())
    of_others = {name for mark, names in OF_MARKS.items() for name in names[mark not in written]}
    group.rows("", BUILT, _after)
    group.rows("", {key: row for key, row in TEXTS.items() if key not in of_others}, _text)
    group.add("not-stripped", "the prompt not stripped", _raw)
    group.add("encoded-whole", "the prompt encoded as a whole, not piece by piece", _whole_text)
    group.add(
        "special-as-text",
        "special tokens of the prompt read as plain text",
        partial(_tokenizes, change=_special_as_text),
    )
    for key, words, change in (
        ("published", "the prompt's ids of the published vocabulary", _published),
        ("ids-published", f"{family.special.image} in place of the image's tokens", _published_image),
    ):
        group.add(key, words, partial(_tokenizes, change=partial(change, family=family)))
    prompts = {
        key: (repr(prompt), prompt)
        for key, prompt in {**(family.based_on.prompts if family.based_on else {}), **family.prompts}.items()
    }
    group.rows("prompt", prompts, _other_prompt, words="the prompt {} in place of the one asked for")
    every = {key: (f"the preset {key} in place of the one asked for", [one]) for key, one in family.presets.items()}
    every["nearest"] = ("the preset nearest to the sizes asked for", [*family.presets.values()])
    group.rows("preset", every, _other_preset)
    counts = token_counts(family)
    group.rows("counts", {key: Row(*row)._replace(needs_crops=True) for key, row in counts.items()}, plant_count)
    return group


def _image(mask: list[bool]) -> tuple[int, int]:
    return (mask.index(True), len(mask) - mask[::-1].index(True)) if True in mask else (0, 0)


def _reordered(ids: list[int], mask: list[bool], order: Callable[[list[Any], int, int], list[Any]]) -> PromptIds:
    first, behind = _image(mask)
    return order(ids, first, behind), order(mask, first, behind)


def _count(ids: list[int], mask: list[bool], special: Any, by: int) -> PromptIds:
    first, behind = _image(mask)
    count = behind - first + by
    return ids[:first] + [special.image] * count + ids[behind:], mask[:first] + [True] * count + mask[behind:]


def _marked(ids: list[int], mask: list[bool], by: int) -> PromptIds:
    return [by if image else one for one, image in zip(ids, mask, strict=True)], mask


Built = Callable[[list[int], list[bool], Any], PromptIds]
"""Change ids and mask; the last argument has the tokenizer's special ids."""
BUILT: MistakeTable = {
    "no-bos": ("no BOS in front of the prompt", lambda ids, mask, special: (ids[1:], mask[1:])),
    "two-bos": ("two BOS in front of the prompt", lambda ids, mask, special: ([special.bos, *ids], [False, *mask])),
    "eos": ("an EOS behind the prompt", lambda ids, mask, special: ([*ids, special.eos], [*mask, False])),
    "eos-for-bos": ("EOS in the place of BOS", lambda ids, mask, special: ([special.eos, *ids[1:]], mask)),
    "bos-behind-image": (
        "BOS behind the image",
        lambda ids, mask, special: _reordered(ids, mask, lambda x, first, end: x[1:end] + x[:1] + x[end:]),
    ),
    "padded-front": ("a pad in front of the prompt", lambda ids, mask, special: ([special.pad, *ids], [False, *mask])),
    "padded-end": ("a pad behind the prompt", lambda ids, mask, special: ([*ids, special.pad], [*mask, False])),
    "image-last": (
        "the image behind the text",
        lambda ids, mask, special: _reordered(ids, mask, lambda x, first, end: x[:first] + x[end:] + x[first:end]),
    ),
    **kin(
        "mask",
        {
            "early": ("the image's mask one place too early", lambda ids, mask, special: (ids, [*mask[1:], False])),
            "late": ("the image's mask one place too late", lambda ids, mask, special: (ids, [False, *mask[:-1]])),
        },
    ),
    "one-fewer": ("one image token fewer", partial(_count, by=-1)),
    "one-more": ("one image token more", partial(_count, by=1)),
    "two-more": ("two image tokens more, as for a begin and an end", partial(_count, by=2)),
    "ids-pad": ("pads in the place of the image's tokens", lambda ids, mask, special: _marked(ids, mask, special.pad)),
    "ids-bos": ("zeros in the place of the image's tokens", lambda ids, mask, special: _marked(ids, mask, 0)),
    "ids-minus": ("-200 in the place of the image's tokens", lambda ids, mask, special: _marked(ids, mask, -200)),
    "no-mask": ("no image tokens in the mask", lambda ids, mask, special: (ids, [False] * len(mask))),
    **kin(
        "mask",
        {
            "one": (
                "the mask True at one image token alone",
                lambda ids, mask, special: (ids, [k == _image(mask)[0] for k in range(len(mask))]),
            ),
            "bos": ("the mask True at BOS as well", lambda ids, mask, special: (ids, [True, *mask[1:]])),
            "all": ("the mask True everywhere", lambda ids, mask, special: (ids, [True] * len(mask))),
            "inverted": ("the mask inverted", lambda ids, mask, special: (ids, [not one for one in mask])),
        },
    ),
    "last-token": ("the prompt's last token left out", lambda ids, mask, special: (ids[:-1], mask[:-1])),
}


def is_built(one: Mistake) -> bool:
    """Return whether a mistake changes the ids of a prompt, and not its text."""
    return one.group == "prompt" and one.how in [row[1] for row in BUILT.values()]


def _after(on: Target, change: Built) -> None:
    build = prompt_ids

    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> PromptIds:
        return change(*build(pieces, counts, tokenizer), tokenizer.special)

    on.changes.set(inputs, "prompt_ids", made)
    on.changes.set(inputs, "check_inputs", lambda *_: None)


Rendered = Callable[[list[str]], list[str]]
"""Change the pieces of a prompt's text, one more than its images."""


def _each(change: Callable[[str], str]) -> Rendered:
    return lambda pieces: [pieces[0], *map(change, pieces[1:])]


def _last(change: Callable[[str], str]) -> Rendered:
    return lambda pieces: [*pieces[:-1], change(pieces[-1])]


def _around(front: str, behind: str) -> Rendered:
    return lambda pieces: [front + pieces[0], *pieces[1:-1], pieces[-1] + behind]


OF_MARKS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    f"{IMAGE}\n": (("newline",), ("no-newline", "two-newlines", "space-for-newline", "escaped", "escaped-after")),
    "<|grounding|>": ((), ("no-grounding",)),
}
"""Rows that are no mistakes, by a part of the prompts: if a model's prompts have it, and if they do not."""
TEXTS: dict[str, tuple[str, Rendered]] = {
    "newline": ("a newline between image and prompt", _each(lambda one: "\n" + one)),
    "no-newline": ("no newline between image and prompt", _each(lambda one: one.removeprefix("\n"))),
    "two-newlines": ("two newlines between image and prompt", _each(lambda one: "\n" + one)),
    "space": ("a space between image and prompt", _each(lambda one: " " + one)),
    "space-for-newline": (
        "a space in the place of the newline behind the image",
        _each(lambda one: " " + one.removeprefix("\n")),
    ),
    "trailing-newline": ("a newline behind the prompt", _last(lambda one: one + "\n")),
    "trailing-space": ("a space behind the prompt", _last(lambda one: one + " ")),
    "no-stop": ("the prompt's last full stop left out", _last(lambda one: one.removesuffix("."))),
    "added": ("a sentence added behind the prompt", _last(lambda one: one + " Only output the raw text.")),
    "escaped": (
        "a backslash and an n in place of each newline",
        lambda pieces: [one.replace("\n", "\\n") for one in pieces],
    ),
    "escaped-after": (
        "a backslash and an n after the newline behind the image",
        _each(lambda one: "\n\\n" + one.removeprefix("\n")),
    ),
    "carriage": (
        "a carriage return in front of each newline",
        lambda pieces: [one.replace("\n", "\r\n") for one in pieces],
    ),
    "no-grounding": (
        "no <|grounding|> in the prompt",
        lambda pieces: [one.replace("<|grounding|>", "") for one in pieces],
    ),
    "stripped": ("each piece of the prompt stripped", lambda pieces: [one.strip() for one in pieces]),
    "lower": ("the prompt in small letters", lambda pieces: [one.lower() for one in pieces]),
    "no-text": ("no text behind the image", _each(lambda one: "")),
    "text-first": ("the text in front of the image", lambda pieces: [pieces[-1].strip() + "\n", *pieces[1:-1], ""]),
    "roles-deepseek": (
        "the roles of DeepSeek's chat around the prompt",
        _around("<｜User｜>: ", "\n\n<｜Assistant｜>:"),
    ),
    "roles-plain": ("User: and Assistant: around the prompt", _around("User: ", "\n\nAssistant:")),
    "roles-chatml": ("ChatML around the prompt", _around("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")),
}


def _text(on: Target, change: Rendered) -> None:
    split = split_at_images
    on.changes.set(inputs, "split_at_images", lambda *given, **how: change(split(*given, **how)))


def _raw(on: Target) -> None:
    on.changes.set(inputs, "split_at_images", lambda prompt, *_, **how: prompt.split(IMAGE))


def _whole_text(on: Target) -> None:
    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> PromptIds:
        ids = [tokenizer.special.bos, *tokenizer.encode(IMAGE.join(pieces))]
        mask = [one == tokenizer.special.image for one in ids]
        return _count(ids, mask, tokenizer.special, counts[0] - 1)

    on.changes.set(inputs, "prompt_ids", made)


@dataclass(frozen=True)
class OtherTokenizer:
    """Tokenizer that encodes otherwise."""

    special: SpecialTokens
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]


def _tokenizes(on: Target, change: Callable[[TextTokenizer], OtherTokenizer]) -> None:
    build = prompt_ids

    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> PromptIds:
        return build(pieces, counts, change(tokenizer))

    on.changes.set(inputs, "prompt_ids", made)
    on.changes.set(inputs, "check_inputs", lambda *_: None)


def _special_as_text(own: TextTokenizer) -> OtherTokenizer:
    def encode(text: str) -> list[int]:
        return [one for part in text.replace("<|", "<\0|").split("\0") for one in own.encode(part)]

    return OtherTokenizer(own.special, encode, own.decode)


def _published(own: TextTokenizer, family: ModelSpec) -> OtherTokenizer:
    """Return the published vocabulary as far as it is known: the special ids, and those of the model's prompts."""

    def encode(text: str) -> list[int]:
        return [*family.prompt_ids.get(text, own.encode(text))]

    return OtherTokenizer(family.special, encode, own.decode)


def _published_image(own: TextTokenizer, family: ModelSpec) -> OtherTokenizer:
    return OtherTokenizer(replace(own.special, image=family.special.image), own.encode, own.decode)


def _other_prompt(on: Target, prompt: str) -> None:
    on.changes.set(inputs, "split_at_images", lambda _, images, **how: split_at_images(prompt, images, **how))


def _other_preset(on: Target, among: Sequence[Preset]) -> None:
    def nearest(_: ModelSpec, own: Preset) -> Preset:
        return min(among, key=lambda one: (one.crop != own.crop, abs(one.view_size - own.view_size)))

    on.changes.set(ModelSpec, "preset", nearest)
