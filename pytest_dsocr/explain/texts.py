"""Explanations of wrong texts: the engine reads every page again under each known mistake.

It follows the subject's tokens in one pass. Several mistakes may give the same text, so every candidate is tried on
every page.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cached_property, partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract import ROWS
from pytest_dsocr.contract.image import load_images
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.engine import pipeline
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.along import Along, copied, passed
from pytest_dsocr.explain.catalogue import groups, seen
from pytest_dsocr.explain.catalogue.reading import ReadingRule, reading
from pytest_dsocr.explain.catalogue.text import Tell
from pytest_dsocr.explain.likely import SOON, likeliest_first
from pytest_dsocr.explain.mistake import ALL, Changes, Mistake, PromptState, Target, in_one_block
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.explain.recompute import Clean, Segment, inputs_under
from pytest_dsocr.explain.search import Search, SearchResult
from pytest_dsocr.models.spec import FUSION, PREFILL, ModelSpec
from pytest_dsocr.records.config import Level
from pytest_dsocr.reference.protocol import unpack_case

INPUTS = ("pixels", "prompt")
WORD = re.compile(r"\s+|\S+")


def explain_texts(engine: Engine[Any], search: Search) -> SearchResult:
    """Explain the texts of pages. Mistakes that explain the earlier pages are tried only on the new one."""
    question = search.question
    return explain_pages([TextPage(engine, one) for one in (question.page, *question.others)], search)


def explain_pages(pages: "Sequence[TextPage]", search: Search) -> SearchResult:
    """Explain the texts of pages, of which the first is the question's."""
    question, engine = search.question, pages[0].engine
    reads = [page.read for page in pages]
    crops_alone = all(one.is_right or one.is_cut for one in reads) and not all(one.is_cut for one in reads)
    by_cost = sorted(pages, key=lambda page: (crops_alone and page.read.is_right, page.read.tokens))
    without = float(reads[0].is_right or pages[0].right != reads[0].text)

    def measure(one: Mistake) -> float:
        asked = pages[:1] if one.id in question.only else by_cost
        return 0.0 if all(page.gives(one) for page in asked if page.is_witness) else float("inf")

    every = of_text(question.level, engine.family, of_one_block(engine))
    if any(one.told for one in reads):  # the tokens are right
        every = [one for one in every if one.group == "text"]
    answer = search.among(sorted(every, key=lambda one: crops_alone and not one.needs_crops), measure, without, 0.0)
    if not answer.found:
        return answer

    def places(name: str) -> int:
        if name in question.only:
            return pages[0].places(name) + question.places
        return sum(page.places(name) for page in pages)

    return replace(answer, places=min(map(places, answer.found)))


def of_text(level: int, family: ModelSpec, more: Iterable[Mistake] = ()) -> Sequence[Mistake]:
    """Return the mistakes that may change a text, in the order of :func:`likeliest_first`.

    A subject of a higher level has shown that its inputs, or its stages, are right. ``more`` are mistakes in one block
    alone.
    """
    kinds = _groups(family) if level < Level.STAGES else SOON
    found = [one for kind in kinds if not (level and kind in INPUTS) for one in groups(family)[kind]]
    found = [one for one in found if one.group != "text" or one.how is not None]
    found += [*everywhere(family), *more] if level < Level.STAGES else []
    return likeliest_first(found, family)


def of_one_block(engine: Engine[Any]) -> Iterator[Mistake]:
    """Yield the mistakes that were seen in ports, each in one block alone."""
    ids = {one.mistake for one in seen(engine.family)}
    for kind in _of_blocks(engine.family):
        yield from in_one_block((one for one in groups(engine.family)[kind] if one.id in ids), engine)


def everywhere(family: ModelSpec) -> Iterator[Mistake]:
    """Yield the mistakes that round the weights of all blocks of vision and of the decoder."""
    stages = [[one for one in groups(family)[kind] if one.kind == "weights"] for kind in _of_blocks(family)]
    for first, *others in zip(*stages, strict=True):
        words = first.words.replace(f"{family.of_views[0].title}'s blocks", "all blocks")
        yield replace(first, group=ALL, words=words, plant=partial(_in_all, (first, *others)))


def _of_blocks(family: ModelSpec) -> list[str]:
    """Return the stages with blocks."""
    return [stage.name for stage in family.stages if stage.blocks]


def _groups(family: ModelSpec) -> tuple[str, ...]:
    """Return the groups that may change a text, the cheapest first."""
    first, *others = family.of_views
    whole, of_blocks = ([one.name for one in others if bool(one.blocks) is blocks] for blocks in (False, True))
    return (*SOON, "prompt", "steps", FUSION, *whole, PREFILL, *of_blocks, "pixels", first.name)


def _in_all(rows: Sequence[Mistake], on: Target) -> None:
    for one in rows:
        one.plant(Target.of_stage(on.engine, on.changes, one.group))


class TextPage:
    """Page on which the engine is tried under mistakes.

    Args:
        engine: an engine without a mistake.
        read: the page with the subject's text.
        inputs: the subject's; by default the right ones.
    """

    def __init__(self, engine: Engine[Any], read: PageRead, inputs: Inputs | None = None) -> None:
        self.engine, self.read, self.case, self._inputs = engine, read, unpack_case(read.case), inputs
        encode, decode = engine.tokenizer.encode, engine.tokenizer.decode
        blanks = [*takewhile(lambda token: not decode([token]).strip(), read.reference_tokens)]
        """Blank tokens before the reference's text, which is stripped."""
        self.ids = [*blanks, *encode(read.text), engine.policy.eos_id]
        self.is_wide = engine.model.dtype == torch.float32
        """Whether passes and steps choose the same tokens: in fewer bits they round differently."""
        self.right = clean_output(decode(read.reference_tokens))
        both = zip(self.ids, [*blanks, *encode(self.right)], strict=False)
        self.apart = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        """Index of the first token at which the subject's text leaves the reference's."""
        self.said: dict[str, list[int]] = {}
        """Tokens of the subject's text, by the mistake under which the engine reads them."""

    @cached_property
    def clean(self) -> Clean:
        """Tensors of the page without a mistake."""
        return Clean(self.engine, self._inputs or inputs_under(self.engine, self.case))

    @cached_property
    def state(self) -> DecodeState[Any]:
        """State after the prompt."""
        return self.engine.pipeline.prefill_with(self.clean.inputs, self.clean.in_prompt)

    @cached_property
    def is_witness(self) -> bool:
        """Whether the page tells mistakes apart; a right page that the engine reads differently does not."""
        by = reading(self.engine.family, {})
        return not self.read.is_right or bool(self._reads(self.clean.inputs, copied(self.state), by, stepped=False))

    def places(self, name: str) -> int:
        """Return the number of places where only a mistake that gives the text explains it.

        These are the tokens that the engine alone would not choose, even by a tie; those before and after the text,
        which it does not show, are one. For another form of the right text they are the words that it changes.
        """
        if self.read.is_right:
            return 0
        if name not in self.said:
            before, after = (WORD.findall(text) for text in (self.right, self.read.text))
            changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
            return sum(kind != "equal" for kind, *_ in changes)
        said, limits = self.said[name], tolerances(str(self.engine.model.dtype).removeprefix("torch."))
        logits = self.known if said == self.ids[: len(said)] else self.along(said)
        ban, found = self.engine.policy.ban(self.clean.inputs.input_ids[0].tolist()), list[int]()
        for k, (of_step, token) in enumerate(zip((self.state.logits, *logits), said, strict=False)):
            own = of_step[0].double()
            own[[one for one in ban.banned() if one != token]] = -torch.inf
            best = float(own.max())
            found += [k] if best - float(own[token]) > limits.ties * limits.ulp(best) else []
            ban.push(token)
        shown = [k for k, token in enumerate(said) if clean_output(self.engine.tokenizer.decode([token]))]
        inside = [k for k in found if shown and shown[0] <= k <= shown[-1]]
        return len(inside) + (len(inside) < len(found))

    def gives(self, one: Mistake) -> bool:
        """Return whether the engine with a mistake reads the subject's text."""
        if one.group == "text":
            tell: Tell = one.how
            is_same = tell(self.engine.tokenizer, self.read.reference_tokens) == self.read.text
            return is_same and all(self._tells(tell, *one) for one in self.read.told)
        if one.group == "steps" and not self.apart:
            return False  # the first token is chosen before all steps
        with Changes() as changes:
            changes.set(pipeline, "scatter", _scatter)
            of_loop = one.group == "read"
            by, prefilled = reading(self.engine.family, one.how if of_loop else {}), self.prefilled(one, changes)
            known = self.known if of_loop and self.is_wide and not (by.blind or by.redecoded) else ()
            if not prefilled:
                return self.read.is_right
            said = self._reads(*prefilled, by, known, stepped=one.stepwise)
        if said:
            self.said[one.id] = said
        return bool(said)

    def _tells(self, tell: Tell, tokens: Sequence[int], text: str) -> bool:
        """Return whether a mistake makes this text of these tokens."""
        return clean_output(tell(self.engine.tokenizer, tokens)) == clean_output(text)

    @cached_property
    def known(self) -> Sequence[Tensor]:
        """Logits of the engine after each token of the subject's text, if it is encoded again."""
        return self.along(self.ids[: self.case.max_new_tokens])

    def along(self, ids: Sequence[int]) -> Sequence[Tensor]:
        """Return the logits of the engine after each of these tokens."""
        state, along = copied(self.state), Along(self.engine.pipeline, ids, self.apart)
        for token in ids:
            along.decode_step(state, [token])
        return along.logits

    def prefilled(self, one: Mistake, changes: Changes) -> tuple[Inputs, DecodeState[Any]] | None:
        """Return the inputs and the state after the prompt under a mistake; None if it changes nothing."""
        right, model, in_prompt = self.clean.inputs, self.engine.pipeline, self.clean.in_prompt
        group = one.group
        if group == "read":
            return right, model.prefill_with(right, None) if "blind" in one.how else copied(self.state)
        if group == "prompt" and one.kind != "preset":  # a preset changes pixels as well
            brief = inputs_under(self.engine, self.case, one, page=load_images(self.case.page))
            if all(torch.equal(getattr(brief, name), getattr(right, name)) for name in ROWS):
                return None
            right = replace(right, input_ids=brief.input_ids, images_seq_mask=brief.images_seq_mask)
            return right, self._prefilled_from(right)
        if group in INPUTS:
            made = inputs_under(self.engine, self.case, one)
            equal = map(torch.equal, made.tensors.values(), right.tensors.values())
            return None if all(equal) else (made, model.prefill(made))
        if group in (PREFILL, "steps"):
            prompt, state = PromptState.of(right, self.state.logits), copied(self.state)
            one.plant(Target.of_stage(self.engine, changes, PREFILL, prompt))
            return right, state if group == "steps" else model.prefill_with(right, in_prompt)
        if in_prompt is None:
            return None
        after = self.after_blocks if (group, one.part) == (self.engine.family.of_views[0].name, "back") else {}
        if not after:
            one.plant(Target.of_stage(self.engine, changes, group))
        first = self.engine.family.of_views[0].name if group == ALL else group
        features = self.clean.fused_under(first, {view: rest.compute(one.plant) for view, rest in after.items()})
        same = features.shape == in_prompt.shape and torch.equal(features, in_prompt)
        return None if same else (right, model.prefill_with(right, features))

    @cached_property
    def after_blocks(self) -> Mapping[tuple[str, str], Segment]:
        """Part of the first encoder after its last block, for each view."""
        first = self.engine.family.of_views[0].name
        views = ("crops", "page") if self.clean.grid != (1, 1) else ("page",)
        return {(first, view): Segment(self.clean, f"{first}.{view}", has_blocks=True) for view in views}

    def _prefilled_from(self, right: Inputs) -> DecodeState[Any]:
        """Return the state after another prompt, computed from where it leaves the page's own if only text differs."""
        pairs = (torch.stack([one.input_ids[0], one.images_seq_mask[0]]) for one in (right, self.clean.inputs))
        new, own = (pair[:, : min(right.prompt_tokens, self.clean.inputs.prompt_tokens) - 1] for pair in pairs)
        same = int((new == own).all(0).long().cumprod(0).sum())
        if not self.is_wide or same < self.clean.image[1] or right.images_seq_mask[0, same:].any():
            return self.engine.pipeline.prefill_with(right, self.clean.fused if right.has_vision else None)
        state = copied(self.state)
        for _ in range(self.clean.inputs.prompt_tokens - same):
            state.cache.drop_last()
        state.cache.prompts = [right.prompt_tokens]
        state.logits = passed(self.engine.pipeline, state, right.input_ids[0, same:].tolist())[-1]
        return state

    def _reads(
        self, inputs: Inputs, state: DecodeState[Any], by: ReadingRule, known: Sequence[Tensor] = (), *, stepped: bool
    ) -> list[int]:
        """Return the tokens by which the engine reads the subject's text; empty at the first difference."""
        tokenizer, eos, most = self.engine.tokenizer, self.engine.policy.eos_id, self.case.max_new_tokens
        stepped = stepped or not self.is_wide
        model: Any = self.engine.pipeline if stepped else Along(self.engine.pipeline, self.ids, self.apart, known)
        said, is_along, text = list[int](), True, ""
        for token in by.tokens(model, state, inputs.input_ids[0].tolist(), tokenizer, eos, most):
            is_along = is_along and self.ids[len(said) : len(said) + 1] == [token]
            said.append(token)
            text = text if is_along else clean_output(tokenizer.decode(said))
            if token != eos and not self.read.text.startswith(text.rstrip("\N{REPLACEMENT CHARACTER}")):
                return []  # the last character may be incomplete
        return said if clean_output(tokenizer.decode(said)) == self.read.text else []


def _scatter(embeds: Tensor, mask: Tensor, features: Tensor, _: int) -> Tensor:
    """Put features into the prompt as the vendor's code does, which drops surplus ones."""
    return embeds.masked_scatter(mask[..., None], features.to(embeds.dtype))
