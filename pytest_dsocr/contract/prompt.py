"""Prompts: special tokens, the plain template, the pieces between the images, and the ids that they become."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_dsocr.base.errors import DsocrError

IMAGE = "<image>"
BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
CHECK_BOXES = (
    "check that the prompt asks for boxes, as `markdown` does, that tokens are decoded with special tokens kept, and "
    "that the limit of tokens and the pages leave room for a box"
)
"""Advice for a run that found no box."""


@dataclass(frozen=True)
class SpecialTokens:
    """Token ids."""

    bos: int
    eos: int
    pad: int
    image: int


class TextTokenizer(Protocol):
    """Methods of a tokenizer that the contract and the engine need."""

    @property
    def special(self) -> SpecialTokens:
        """The ids of this vocabulary's special tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, with no BOS and no EOS added; special tokens in it become their ids."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, special tokens kept, spaces as they are."""


def locate(phrase: str) -> str:
    """Return the prompt that asks for the place of ``phrase``; raise ``DsocrError`` if it is empty."""
    if not phrase.strip():
        raise DsocrError("there is no phrase to locate; give the words to look for")
    return f"<image>\nLocate <|ref|>{phrase}<|/ref|> in the image."


def render(prompt: str) -> str:
    """Apply the vendor's plain template to a prompt: it has no roles, and strips the white space around the text.

    Raises:
        DsocrError: if the prompt is empty.
    """
    text = prompt.strip()
    if not text:
        raise DsocrError("the prompt is empty; give a text, or the name of a prompt")
    return text


def split_at_images(prompt: str, images: int, *, at_one_place: bool = False) -> list[str]:
    """Render ``prompt`` and return the texts around its ``<image>`` placeholders, one more than there are placeholders.

    Raises:
        DsocrError: if there is not one placeholder for each image, or one for all with ``at_one_place``. The vendor
        would read a prompt without placeholders twice, and drop surplus ones with the text between them. With
        ``at_one_place`` it would fail, or drop all text after a second placeholder.
    """
    pieces = render(prompt).split(IMAGE)
    placeholders = len(pieces) - 1
    if images and not placeholders:
        raise DsocrError(
            f"the prompt {prompt!r} has no {IMAGE} to put the image at; add it, usually in front, "
            "or give the name of a prompt"
        )
    if placeholders != (1 if at_one_place else images):
        raise DsocrError(
            f"the prompt has {placeholders} {IMAGE} placeholders and there are {images} images; "
            f"give exactly one placeholder for {'all images' if at_one_place else 'each image'}"
        )
    return pieces


def prompt_ids(
    pieces: Sequence[str], image_tokens: Sequence[int], tokenizer: TextTokenizer
) -> tuple[list[int], list[bool]]:
    """Return the prompt's ids and mask: BOS, then the pieces with each image's ids between them; no EOS.

    Args:
        pieces: the texts around the placeholders, one more than there are images.
        image_tokens: how many ``<image>`` ids each image takes; the mask is True on exactly those.
        tokenizer: encodes each piece by itself.
    """
    texts = [tokenizer.encode(piece) for piece in pieces]
    ids, mask = [tokenizer.special.bos, *texts[0]], [False] * (1 + len(texts[0]))
    for count, text in zip(image_tokens, texts[1:], strict=True):
        ids += [tokenizer.special.image] * count + text
        mask += [True] * count + [False] * len(text)
    return ids, mask
