"""Mistakes in the choice of tokens: the n-gram rule, the loop and its end. They are in ``read``, not in a stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch

from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine import pipeline, session
from pytest_dsocr.engine.session import Session
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.registry import ANY, LONG, REPEATS, fault

LOOPS = "the page's text, then one line to the limit"
CUT = "the text ends early"
RULE = "n-grams|no_repeat_ngram"


def _size(patch: pytest.MonkeyPatch, subject: SessionSubject, size: int) -> None:
    patch.setattr(subject.session, "policy", replace(subject.session.policy, no_repeat_ngram_size=size))


def _loop(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the steps of the loop, each the tokens of a row."""
    right = pipeline.generate
    patch.setattr(session, "generate", lambda *args: change(right, *args))


@fault("NGR-02", "No rule for n-grams", "decode", LOOPS, RULE, REPEATS)
def no_rule(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The processor was not ported."""
    _size(patch, subject, 0)


@fault("NGR-06", "N-grams of 21", "decode", LOOPS, RULE, REPEATS)
def one_longer(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """n is taken for the length of what stands before the token."""
    _size(patch, subject, 21)


@fault("NGR-W1", "N-grams of 35", "decode", LOOPS, RULE, REPEATS)
def of_eval_mode(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The size of the vendor's evaluation mode."""
    _size(patch, subject, 35)


@fault("NGR-W2", "N-grams of 3", "decode", "numbers of tables go wrong", RULE)
def short(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The size that is usual for summaries."""
    _size(patch, subject, 3)


@fault("NGR-01", "The rule left out of greedy decoding", "read", LOOPS, RULE, REPEATS)
def left_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The processor says that it does not change the best token; the policy still has it."""
    patch.setattr(pipeline, "NgramBan", lambda size, prompt: NgramBan(0))


@fault("NGR-07", "The rule looks at a window of 90", "read", LOOPS, RULE, REPEATS + " far apart")
def window(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The window of the vendor's code for another runner."""

    class Windowed(NgramBan):
        def __init__(self, size: int, prompt: Any) -> None:
            super().__init__(size)
            self.size, self.seen = size, list(prompt)

        def push(self, token: int) -> None:
            self.seen.append(token)

        def banned(self) -> list[int]:
            return NgramBan(self.size, self.seen[-90:]).banned()

    patch.setattr(pipeline, "NgramBan", Windowed)


@fault(
    "NGR-W3",
    "The rule does not count the prompt",
    "read",
    "nothing",
    RULE,
    "a page that repeats the prompt",
)
def without_prompt(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Only the output is pushed."""
    patch.setattr(pipeline, "NgramBan", lambda size, prompt: NgramBan(size))


@fault(
    "NGR-W4", "Table tags excused from the rule", "read", "wide empty tables are repeated", RULE, "a wide empty table"
)
def excused(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The white list of the vendor's code for another runner."""
    tags = {token for text in ("<td>", "</td>") for token in subject.session.tokenizer.encode(text)}

    class Excusing(NgramBan):
        def banned(self) -> list[int]:
            return [token for token in super().banned() if token not in tags]

    patch.setattr(pipeline, "NgramBan", Excusing)


@fault(
    "DEC-05",
    "The last of equal logits",
    "read",
    "a tie that goes the other way",
    "best token",
    "a page with a tie",
)
def last_of_equals(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A maximum that keeps the last of equals."""
    right = pipeline.pick
    flipped: Any = lambda logits, banned: [logits.shape[-1] - 1 - t for t in right(logits.flip(-1), [])]  # noqa: E731
    patch.setattr(
        pipeline, "pick", lambda logits, banned: right(logits, banned) if any(banned) else flipped(logits, ())
    )


@fault("DEC-04", "A draw in place of the best", "read", "another text each time", "draw")
def draw(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Sampling is left on, with temperature 1."""
    generator = torch.Generator().manual_seed(0)
    pick: Any = lambda logits, banned: torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0].tolist()  # noqa: E731
    patch.setattr(pipeline, "pick", pick)


@fault("DEC-02", "The first token lost", "read", "the first <|ref|> is missing", "after prefill is kept")
def first_lost(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """It is fed and not kept."""

    def steps(right: Any, *args: Any) -> Iterator[list[int]]:
        every = iter(list(right(*args)))
        next(every)
        yield from every

    _loop(patch, steps)


@fault("EOS-W1", "EOS does not end it", "read", LOOPS, "ends|EOS")
def no_end(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Another id is taken for EOS in the loop, and the text is that of all tokens."""
    pad = subject.session.tokenizer.special.pad
    _loop(patch, lambda right, *args: right(*args[:3], replace(args[3], eos_id=pad), pad))
    right = Session._text_and_markup
    to_the_end: Any = lambda self, row, policy: right(self, row, replace(policy, eos_id=pad))  # noqa: E731
    patch.setattr(Session, "_text_and_markup", to_the_end)


@fault("EOS-W2", "Another id for the end", "decode", LOOPS, "EOS")
def other_eos(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Pad, id 2, is taken for EOS."""
    patch.setattr(subject.session, "policy", replace(subject.session.policy, eos_id=2))


@fault(
    "EOS-04", "An end at a string of the page", "read", CUT, "no string that a page may hold", "a page that prints it"
)
def stop_string(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A template's stop string, here a blank line, was copied into the server."""
    right = Session.run
    cut: Any = lambda self, *a, **k: replace(r := right(self, *a, **k), text=r.text.partition("\n\n")[0])  # noqa: E731
    patch.setattr(Session, "run", cut)


@fault("POS-10", "A ceiling that counts the prompt", "read", CUT, "ceiling", LONG)
def ceiling(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """max_length in place of max_new_tokens, at 1,024."""

    def steps(right: Any, pipeline: Any, state: Any, prompts: Any, policy: Any, pad: int) -> Any:
        left = max(1, 1024 - len(prompts[0]))
        return right(pipeline, state, prompts, replace(policy, max_new_tokens=min(policy.max_new_tokens, left)), pad)

    _loop(patch, steps)


@fault("DEC-W1", "A penalty on what was said", "read", "another word here and there", "best token|draw|penalty")
def penalty(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """repetition_penalty of 1.2, a common default."""

    class Remembering(NgramBan):
        said: ClassVar[set[int]] = set()

        def push(self, token: int) -> None:
            type(self).said.add(token)
            super().push(token)

    def pick(logits: torch.Tensor, banned: Any) -> list[int]:
        at = list(Remembering.said)
        logits = logits.clone()
        logits[:, at] = torch.where(logits[:, at] > 0, logits[:, at] / 1.2, logits[:, at] * 1.2)
        return greedy_pick(logits, banned)

    greedy_pick = pipeline.pick
    patch.setattr(pipeline, "NgramBan", lambda size, prompt: Remembering(size))
    patch.setattr(pipeline, "pick", pick)


@fault("SCT-04", "read without the image's features", "read", "fluent text of no page", "image's features")
def unseen_page(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """read prefills the prompt a second time, without what vision has seen."""
    right = Session._read
    blind: Any = lambda pages: [replace(p, images_ori=p.images_ori * 0) for p in pages]  # noqa: E731
    patch.setattr(Session, "_read", lambda self, pages, *a, **k: right(self, blind(pages), *a, **k))


@fault("EOS-05", "read gives nothing back", "read", "no text", "gives back|returned", ANY)
def nothing_back(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The text is printed and not returned."""
    patch.setattr(SessionSubject, "read", lambda self, page, **asked: "")
