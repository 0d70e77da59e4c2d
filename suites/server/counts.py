"""Checks of token counts: those of the prompt, and those of the answer under ``max_tokens``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.presets import Preset, image_token_count
from pytest_dsocr.contract.prompt import IMAGE

from .asked import MANY, SHOWN, SOME, Asked, judged, not_offered

if TYPE_CHECKING:
    from pytest_dsocr.explain.catalogue.grids import GridRule

Encode = Callable[[str], Sequence[int]]
NEAR = 16
"""Largest difference of the template's tokens with and without an image."""


class Counted(NamedTuple):
    """Page with the tokens that the server counts for it."""

    name: str
    size: tuple[int, int]
    """Width and height in pixels, upright."""
    preset: Preset
    text: int
    """Tokens of the prompt without those of the image, and with BOS."""
    actual: int
    """All tokens of the prompt, as the server counts them."""
    prompt: str

    @property
    def extra(self) -> int:
        """Number of tokens that the vendor's prompt does not have."""
        return self.actual - self.by()

    def by(self, preset: Preset | None = None, rule: GridRule | None = None) -> int:
        """Return the vendor's number of tokens, or the number in another preset or by another rule for grids."""
        own = preset or self.preset
        grid = rule(*self.size, own.tiling) if rule and own.crop else own.grid(*self.size)
        return self.text + image_token_count(own, grid)


def prompt_tokens(asked: Asked) -> Comparison:
    """Compare the server's counts for the run's pages and odd ones with the vendor's."""
    pages, encode = [], asked.tokenizer.encode
    for case in (*asked.cases, *asked.odd.values()):
        if (counted := asked(case, 1).prompt_tokens) is None:
            return not_offered("prompt_tokens", "usage.prompt_tokens")
        text = _text_tokens(case.prompt.strip().split(IMAGE), encode)
        pages.append(Counted(case.id, load_image(case.page).size, case.preset, text, counted, case.prompt.strip()))
    alone = asked.first.prompt.replace(IMAGE, "").strip()
    bare = asked(asked.first, 1, messages=[{"role": "user", "content": alone}]).prompt_tokens or 0
    return compare_counts(pages, bare - len(encode(alone)) - 1, encode)


def _text_tokens(pieces: Sequence[str], encode: Encode) -> int:
    return 1 + sum(len(encode(piece)) for piece in pieces)


def compare_counts(pages: Sequence[Counted], bare: int, encode: Encode) -> Comparison:
    """Compare counts, allowing one number of extra tokens for every page: the template's, which is near ``bare``.

    ``bare`` is the number of extra tokens in a prompt without an image.
    """
    offset = Counter(page.extra for page in pages).most_common()[0][0]
    offset = offset if abs(offset - bare) <= NEAR else bare
    by_prompt = {
        prompt: {page.extra for page in pages if page.prompt == prompt} for page in pages if (prompt := page.prompt)
    }
    is_of_text = len(by_prompt) > 1 and all(len(extra) == 1 for extra in by_prompt.values())
    faults = [_fault(page, offset) for page in pages if page.extra != offset]
    if faults and is_of_text:
        extras = [f"{extra.pop():+d} for {prompt!r}" for prompt, extra in by_prompt.items()]
        faults = [f"every image is counted right; the prompt's text has other tokens: {', '.join(extras)}"]
    ways = [*(_texts(pages, bare, encode) if is_of_text else _ways(pages, bare))] if faults else []
    otherwise = "how the server writes the prompt" if is_of_text else "how the server counts an image"
    check = f"whether the cause is {', or '.join(ways[:SHOWN])}" if ways else otherwise
    template = f", each {offset:+d} by the server's template" if offset else ""
    return judged("prompt_tokens", faults, f"the vendor's on {len(pages)} pages{template}", check)


def _fault(page: Counted, offset: int) -> str:
    rest = page.actual - offset - page.text
    grids = [one for one in ((1, 1), *page.preset.tiling.grids) if image_token_count(page.preset, one) == rest]
    of = f", the count of a grid of {' or '.join(f'{columns} x {rows}' for columns, rows in grids)}" if grids else ""
    extra = f", and {offset:+d} for the server's template" if offset else ""
    return f"{page.name}: {page.actual} tokens counted{of}; expected {page.by()}, as in the vendor's code{extra}"


def _texts(pages: Sequence[Counted], bare: int, encode: Encode) -> Iterator[str]:
    """Yield the known mistakes of a prompt's text that explain every count, allowing for the template's tokens."""
    from pytest_dsocr.explain.catalogue.prompt import TEXTS

    for words, change in TEXTS.values():
        one, *others = {
            page.extra + page.text - _text_tokens(change(page.prompt.split(IMAGE)), encode) for page in pages
        }
        if not others and abs(one - bare) <= NEAR:
            yield words


def _ways(pages: Sequence[Counted], bare: int) -> Iterator[str]:
    """Yield the known mistakes that explain the count of every page, allowing for the template's tokens."""
    from pytest_dsocr.explain.catalogue.grids import GRIDS
    from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR

    counts: dict[str, Callable[[Counted], int]] = {"a count without the image": lambda page: page.text}
    own = pages[0].preset
    presets = [replace(one, tiling=own.tiling, layout=own.layout) for one in DEEPSEEK_OCR.presets.values()]
    counts |= {f"the preset {one.name}": partial(Counted.by, preset=one) for one in presets}
    counts |= {
        words.replace("{crop}", str(own.tiling.crop_px)): partial(Counted.by, rule=rule)
        for words, rule in GRIDS.values()
    }
    for words, count in counts.items():
        one, *others = {page.actual - count(page) for page in pages}
        if not others and abs(one - bare) <= NEAR:
            yield words


def max_tokens(asked: Asked) -> Comparison:
    """Compare answers under ``max_tokens`` with the reference's first tokens, and their counts with the limit."""
    faults, known = [], [step.token for step in asked.steps]
    agrees = asked(asked.first).text.strip() == asked.text_of(known[:MANY])
    for most in (1, SOME):
        answer = asked(asked.first, most)
        prompt, said, both = answer.prompt_tokens, answer.completion_tokens, answer.total_tokens
        if said not in (None, most) or (None not in (prompt, said, both) and both != (prompt or 0) + most):
            faults.append(f"max_tokens {most}: {said} tokens counted, {prompt} in the prompt, {both} in all")
        if agrees and answer.text.strip() != (text := asked.text_of(known[:most])):
            faults.append(f"max_tokens {most}: {answer.text!r}, expected {text!r}")
    return judged("max_tokens", faults, f"1 and {SOME} tokens", "that an answer's first token counts")


def finish_reason(asked: Asked) -> Comparison:
    """Compare ``finish_reason`` with the actual end of answers."""
    answers = [(case, asked(case)) for case in asked.short]
    ended = [(case, answer, "stop") for case, answer in answers if len(asked.tokenizer.encode(answer.text)) < MANY - 2]
    expected = [(asked.first, asked(asked.first, SOME), "length"), *ended]
    if not any(answer.ended_by for _, answer, _ in expected):
        return not_offered("finish_reason", "finish_reason")
    wrong = [one for one in expected if one[1].ended_by != one[2]]
    faults = [f"{case.id}: {answer.ended_by!r}, expected {why!r}" for case, answer, why in wrong]
    return judged("finish_reason", faults, "length and stop", "finish_reason, which shows that a page is cut off")
