"""Mistakes of the decoding loop: choice of tokens, and end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine import engine
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.explain.catalogue.blocks import DTYPES
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, kin
from pytest_dsocr.models.spec import ModelSpec

TAGS = ("<td>", "</td>")
SIZES, PENALTIES = (35, 19, 21, 10, 30, 3, 4, 5, 2, 1, 8, 15, 25, 40), (1.05, 1.1, 1.2, 1.3, 1.5)
GUARDS = (4, 8, 16)
WINDOWS = (100, 64, 128, 50, 256)
LIMITS = (16, 20, 32, 50, 64, 100, 128, 256, 512, 1024)


@dataclass(frozen=True)
class ReadingRule:
    """Rules that choose tokens until the end; the defaults are the vendor's, except ``size``."""

    size: int
    prompt_counts: bool = True
    window: int | None = None
    """Number of tokens that the n-gram rule looks back."""
    excused: tuple[str, ...] = ()
    """Texts with tokens that the rule does not forbid."""
    penalty: float = 1.0
    penalty_of_prompt: bool = True
    most: int | None = None
    most_with_prompt: int | None = None
    redecoded: bool = False
    blind: bool = False
    """Whether the prompt is read without the image's features."""
    last_of_equals: bool = False
    seed: int | None = None
    """Seed for drawing tokens; None to take the best one."""
    ends: bool = True
    """Whether EOS ends the text."""
    stop: Callable[[str], bool] | None = None
    rounded: torch.dtype | None = None

    def tokens(
        self,
        pipeline: Pipeline[Any],
        state: DecodeState[Any],
        prompt: Sequence[int],
        tokenizer: TextTokenizer,
        eos: int,
        most: int,
    ) -> Iterator[int]:
        """Yield the tokens of one page from its prefilled state."""
        if self.redecoded:
            pipeline.redecode_last(state)
        excused = {token for text in self.excused for token in tokenizer.encode(text)}
        generator = torch.Generator().manual_seed(self.seed or 0)
        most = min(most, self.most or most, max(1, (self.most_with_prompt or len(prompt) + most) - len(prompt)))
        said: list[int] = []
        ban = NgramBan(self.size, prompt if self.prompt_counts else (), self.window)
        while len(said) < most:
            banned = [token for token in ban.banned() if token not in excused]
            said.append(self._choose(state.logits[0], prompt, said, banned, generator))
            ban.push(said[-1])
            yield said[-1]
            if (said[-1] == eos and self.ends) or (self.stop and self.stop(tokenizer.decode(said).strip())):
                return
            if len(said) < most:
                pipeline.decode_step(state, said[-1:])

    def _choose(
        self, logits: Tensor, prompt: Sequence[int], said: Sequence[int], banned: list[int], generator: torch.Generator
    ) -> int:
        """Choose the next token of logits ``[V]``."""
        logits = logits.clone() if self.rounded is None else logits.to(self.rounded).float()
        if banned:
            logits[banned] = -torch.inf
        if self.penalty != 1.0 and (seen := {*(prompt if self.penalty_of_prompt else ()), *said}):
            at = sorted(seen)
            logits[at] = torch.where(logits[at] > 0, logits[at] / self.penalty, logits[at] * self.penalty)
        if self.seed is not None:
            return int(torch.multinomial(logits.softmax(-1), 1, generator=generator))
        if self.last_of_equals:
            return len(logits) - 1 - int(logits.flip(0).argmax())
        return int(logits.argmax())


def _is_stuck(text: str, times: int) -> bool:
    """Return whether a text ends with one word this often, where a guard against repetition stops it."""
    last = text.split()[-times:]
    return len(last) == times and len({*last}) == 1


RULES: MistakeTable = {
    "no-rule": ("no n-gram rule", {"size": 0}),
    "generated-alone": ("an n-gram rule that does not count the prompt", {"prompt_counts": False}),
    "window-90": Row("an n-gram rule that looks back 90 tokens, as vLLM's does", {"window": 90}, kind="window"),
    **kin("window", {f"{n}": (f"an n-gram rule that looks back {n} tokens", {"window": n}) for n in WINDOWS}),
    "tags-excused": ("an n-gram rule that excuses a table's tags, as vLLM's does", {"excused": TAGS}),
}
"""Changes of the n-gram rule for a model that has one."""
OTHER_RULES: MistakeTable = {
    f"window-35-{n}": Row(f"an n-gram rule of 35 tokens that looks back {n}", {"size": 35, "window": n}, kind="window")
    for n in (128, 1024)
}
"""Rules of the model's card, for a model whose ``infer`` has none by default."""
READINGS: MistakeTable = {
    "blind": ("a prompt read a second time without the image's features", {"blind": True}),
    "redecoded": ("the prompt's last token decoded once more for the first token", {"redecoded": True}),
    "window-30-90": Row("an n-gram rule of 30 tokens that looks back 90", {"size": 30, "window": 90}, kind="window"),
    **kin("size", {f"{n}": (f"an n-gram rule of {count(n, 'token')} in place of {{own}}", {"size": n}) for n in SIZES}),
    **kin("penalty", {f"{n:g}": (f"a penalty of {n:g} on tokens that were said", {"penalty": n}) for n in PENALTIES}),
    **{
        f"penalty-said-{n:g}": Row(
            f"a penalty of {n:g} on tokens that were said, the prompt's not counted",
            {"penalty": n, "penalty_of_prompt": False},
            kind="penalty",
        )
        for n in (1.05, 1.1, 1.2)
    },
    **{
        key: Row(f"logits rounded to {key} in front of the choice", {"rounded": dtype}, key)
        for key, dtype in DTYPES.items()
    },
    **kin("most", {f"{n}": (f"an output that ends after {n} tokens", {"most": n}) for n in LIMITS}),
    "paragraph": ("an output that ends at the first empty line", {"stop": lambda text: "\n\n" in text}),
    "line": ("an output that ends at the first newline", {"stop": lambda text: "\n" in text}),
    "first-span": ("an output that ends with the first span", {"stop": lambda text: "<|/det|>" in text}),
    **kin(
        "guard",
        {
            f"{n}": (f"an output that ends once a word comes {n} times in a row", {"stop": partial(_is_stuck, times=n)})
            for n in GUARDS
        },
    ),
    "ceiling-1024": ("an output that ends where it has 1024 tokens with the prompt", {"most_with_prompt": 1024}),
    "last-of-equals": ("the last of equally good tokens", {"last_of_equals": True}),
    "draw": ("a token drawn in place of the best", {"seed": 0}),
    "no-end": ("an output that goes on behind EOS", {"ends": False}),
}
SIGNS = {
    Symptom.SAID_FORBIDDEN: ("window-90",),
    Symptom.NOT_ITS_BEST: ("draw", "penalty-said-1.2"),
    Symptom.EMPTINESS: ("blind",),
    Symptom.UNRELATED: ("blind",),
    Symptom.TRUNCATION: ("paragraph", "ceiling-1024", "size-35"),
    Symptom.GOES_ON: ("no-end",),
    Symptom.REPETITION: ("no-rule", "window-90"),
}


def reading_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes of the loop."""
    group, own = Group("read", SIGNS), family.decoding.no_repeat_ngram_size
    rows = {key: Row(*row) for key, row in ((RULES if own else OTHER_RULES) | READINGS).items() if key != f"size-{own}"}
    group.rows("", {key: row._replace(words=row.words.format(own=own or "none")) for key, row in rows.items()}, _reads)
    return group


def reading(family: ModelSpec, how: Mapping[str, Any]) -> ReadingRule:
    """Return the vendor's way of reading, with the changes of a row."""
    return ReadingRule(**{"size": family.decoding.no_repeat_ngram_size, **how})


def _reads(on: Target, how: Mapping[str, Any]) -> None:
    by = reading(on.engine.family, how)

    def generate(pipeline: Any, state: Any, prompts: Any, policy: Any, pad: int) -> Iterator[list[int]]:
        [prompt] = prompts
        for token in by.tokens(pipeline, state, prompt, on.engine.tokenizer, policy.eos_id, policy.room(len(prompt))):
            yield [token]

    on.changes.set(engine, "generate", generate)
    if not by.ends:
        on.changes.set(engine, "until_end", lambda row, _: tuple(row))
    if by.blind:
        prefill = Pipeline.prefill_with
        on.changes.set(Pipeline, "prefill", lambda self, inputs, **options: prefill(self, inputs, None, **options))
