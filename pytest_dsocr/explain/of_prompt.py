"""What-ifs of the prompt: its ids, the image's tokens among them, and the mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pytest_dsocr.contract import inputs
from pytest_dsocr.contract.presets import PRESETS, Preset
from pytest_dsocr.contract.prompt import IMAGE, PROMPTS, TextTokenizer, prompt_ids, split_at_images
from pytest_dsocr.explain.family import Bench, Family

PROMPT = Family("prompt")
Ids = tuple[list[int], list[bool]]
Built = Callable[[Ids, Any], Ids]
"""Changes ids and mask; of a tokenizer's special ids."""


def _after(on: Bench, change: Built) -> None:
    build = prompt_ids

    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> Ids:
        return change(build(pieces, counts, tokenizer), tokenizer.special)

    on.changes.set(inputs, "prompt_ids", made)


def _image(mask: list[bool]) -> tuple[int, int]:
    return (mask.index(True), len(mask) - mask[::-1].index(True)) if True in mask else (0, 0)


def _moved(built: Ids, _special: Any, by: int) -> Ids:
    ids, mask = built
    return ids, (mask[by:] + [False] * by) if by > 0 else ([False] * -by + mask[:by])


def _at_end(built: Ids, _special: Any) -> Ids:
    ids, mask = built
    first, behind = _image(mask)
    return (
        ids[:first] + ids[behind:] + ids[first:behind],
        mask[:first] + mask[behind:] + mask[first:behind],
    )


def _count(built: Ids, special: Any, by: int) -> Ids:
    ids, mask = built
    first, _ = _image(mask)
    if by > 0:
        return ids[:first] + [special.image] * by + ids[first:], mask[:first] + [True] * by + mask[first:]
    return ids[:first] + ids[first - by :], mask[:first] + mask[first - by :]


def _framed(built: Ids, _special: Any, front: Sequence[int] = (), behind: Sequence[int] = ()) -> Ids:
    ids, mask = built
    return [*front, *ids, *behind], [*(False for _ in front), *mask, *(False for _ in behind)]


BUILT: dict[str, tuple[str, Built]] = {
    "no-bos": ("no BOS in front of the prompt", lambda built, special: (built[0][1:], built[1][1:])),
    "two-bos": ("two BOS in front of the prompt", lambda built, special: _framed(built, special, (special.bos,))),
    "eos": ("an EOS behind the prompt", lambda built, special: _framed(built, special, (), (special.eos,))),
    "eos-for-bos": ("EOS in the place of BOS", lambda built, special: ([special.eos, *built[0][1:]], built[1])),
    "bos-behind-image": (
        "BOS behind the image",
        lambda built, special: (_bos_at(built, _image(built[1])[1]), _bos_mask(built)),
    ),
    "padded-front": ("a pad in front of the prompt", lambda built, special: _framed(built, special, (special.pad,))),
    "padded-end": ("a pad behind the prompt", lambda built, special: _framed(built, special, (), (special.pad,))),
    "image-last": ("the image behind the text", _at_end),
    "mask-early": ("the image's mask one place too early", partial(_moved, by=1)),
    "mask-late": ("the image's mask one place too late", partial(_moved, by=-1)),
    "one-fewer": ("one image token fewer", partial(_count, by=-1)),
    "one-more": ("one image token more", partial(_count, by=1)),
    "two-more": ("two image tokens more, as for a begin and an end", partial(_count, by=2)),
    "ids-pad": (
        "pads in the place of the image's tokens",
        lambda built, special: ([special.pad if m else i for i, m in zip(*built, strict=True)], built[1]),
    ),
    "ids-bos": (
        "zeros in the place of the image's tokens",
        lambda built, special: ([0 if m else i for i, m in zip(*built, strict=True)], built[1]),
    ),
    "ids-minus": (
        "-200 in the place of the image's tokens",
        lambda built, special: ([-200 if m else i for i, m in zip(*built, strict=True)], built[1]),
    ),
    "no-mask": ("no image tokens in the mask", lambda built, special: (built[0], [False] * len(built[1]))),
    "mask-one": (
        "the mask True at one image token alone",
        lambda built, special: (built[0], [k == _image(built[1])[0] for k in range(len(built[1]))]),
    ),
    "mask-bos": ("the mask True at BOS as well", lambda built, special: (built[0], [True, *built[1][1:]])),
    "mask-all": ("the mask True everywhere", lambda built, special: (built[0], [True] * len(built[1]))),
    "mask-inverted": ("the mask inverted", lambda built, special: (built[0], [not one for one in built[1]])),
    "last-token": ("the prompt's last token left out", lambda built, special: (built[0][:-1], built[1][:-1])),
}


def _bos_at(built: Ids, place: int) -> list[int]:
    ids = built[0]
    return ids[1:place] + ids[:1] + ids[place:]


def _bos_mask(built: Ids) -> list[bool]:
    mask, place = built[1], _image(built[1])[1]
    return mask[1:place] + mask[:1] + mask[place:]


for _key, (_words, _built) in BUILT.items():
    PROMPT.add(_key, _words, partial(_after, change=_built))

Rendered = Callable[[list[str]], list[str]]


def _text(on: Bench, change: Rendered) -> None:
    split = split_at_images
    on.changes.set(inputs, "split_at_images", lambda prompt, images: change(split(prompt, images)))


def _raw(on: Bench) -> None:
    on.changes.set(inputs, "split_at_images", lambda prompt, images: prompt.split(IMAGE))


TEXTS: dict[str, tuple[str, Rendered]] = {
    "no-newline": (
        "no newline between image and prompt",
        lambda pieces: [pieces[0], *(one.removeprefix("\n") for one in pieces[1:])],
    ),
    "two-newlines": (
        "two newlines between image and prompt",
        lambda pieces: [pieces[0], *("\n" + one for one in pieces[1:])],
    ),
    "space": ("a space between image and prompt", lambda pieces: [pieces[0], *(" " + one for one in pieces[1:])]),
    "space-for-newline": (
        "a space in the place of the newline behind the image",
        lambda pieces: [pieces[0], *(" " + one.removeprefix("\n") for one in pieces[1:])],
    ),
    "trailing-newline": ("a newline behind the prompt", lambda pieces: [*pieces[:-1], pieces[-1] + "\n"]),
    "trailing-space": ("a space behind the prompt", lambda pieces: [*pieces[:-1], pieces[-1] + " "]),
    "no-stop": ("the prompt's last full stop left out", lambda pieces: [*pieces[:-1], pieces[-1].removesuffix(".")]),
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
    "no-text": ("no text behind the image", lambda pieces: [pieces[0], *("" for _ in pieces[1:])]),
    "text-first": ("the text in front of the image", lambda pieces: [pieces[-1].strip() + "\n", *pieces[1:-1], ""]),
    "roles-deepseek": (
        "the roles of DeepSeek's chat around the prompt",
        lambda pieces: ["<｜User｜>: " + pieces[0], *pieces[1:-1], pieces[-1] + "\n\n<｜Assistant｜>:"],
    ),
    "roles-plain": (
        "User: and Assistant: around the prompt",
        lambda pieces: ["User: " + pieces[0], *pieces[1:-1], pieces[-1] + "\n\nAssistant:"],
    ),
    "roles-chatml": (
        "ChatML around the prompt",
        lambda pieces: [
            "<|im_start|>user\n" + pieces[0],
            *pieces[1:-1],
            pieces[-1] + "<|im_end|>\n<|im_start|>assistant\n",
        ],
    ),
}
for _key, (_words, _rendered) in TEXTS.items():
    PROMPT.add(_key, _words, partial(_text, change=_rendered))
PROMPT.add("not-stripped", "the prompt not stripped", _raw)


def _whole_text(on: Bench) -> None:
    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> Ids:
        ids = [tokenizer.special.bos, *tokenizer.encode(IMAGE.join(pieces))]
        place = ids.index(tokenizer.special.image)
        first, count = ids[:place], counts[0]
        rest = ids[place + 1 :]
        mask = [False] * place + [True] * count + [False] * len(rest)
        return first + [tokenizer.special.image] * count + rest, mask

    on.changes.set(inputs, "prompt_ids", made)


def _special_as_text(on: Bench) -> None:
    build = prompt_ids

    def made(pieces: Sequence[str], counts: Sequence[int], tokenizer: TextTokenizer) -> Ids:
        class Plain:
            special = tokenizer.special

            def encode(self, text: str) -> list[int]:
                return [one for part in text.replace("<|", "<\0|").split("\0") for one in tokenizer.encode(part)]

            def decode(self, ids: Sequence[int]) -> str:
                return tokenizer.decode(ids)

        return build(pieces, counts, Plain())

    on.changes.set(inputs, "prompt_ids", made)


PROMPT.add("encoded-whole", "the prompt encoded as a whole, not piece by piece", _whole_text)
PROMPT.add("special-as-text", "special tokens of the prompt read as plain text", _special_as_text)


def _other_prompt(on: Bench, prompt: str) -> None:
    on.changes.set(inputs, "split_at_images", lambda _, images: split_at_images(prompt, images))


def _other_preset(on: Bench, preset: Preset) -> None:
    on.changes.set(inputs, "get_preset", lambda _: preset)


for _key, _prompt in PROMPTS.items():
    PROMPT.add(
        f"prompt-{_key}",
        f"the prompt {_prompt!r} in place of the one asked for",
        partial(_other_prompt, prompt=_prompt),
    )
for _key, _preset in PRESETS.items():
    PROMPT.add(
        f"preset-{_key}", f"the preset {_key} in place of the one asked for", partial(_other_preset, preset=_preset)
    )
