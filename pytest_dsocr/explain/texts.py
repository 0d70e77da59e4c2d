"""What explains texts: every page that a run has read is read again under mistakes, in one pass along its own tokens.

Several mistakes may give the same text, so that none ends a search: what is left gives the subject's on every page.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.explain.catalogue import groups, seen
from pytest_dsocr.explain.catalogue.output import TEXTS
from pytest_dsocr.explain.catalogue.reading import ReadingRule, reading
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.hints import RESIZED
from pytest_dsocr.explain.mistake import ALL, ALONE, Changes, Mistake, Target, in_one_block
from pytest_dsocr.explain.question import PageRead, Question, SearchResult, search
from pytest_dsocr.explain.recompute import Clean, Segment, inputs_under
from pytest_dsocr.models.spec import DECODE, FUSION, PREFILL, ModelSpec
from pytest_dsocr.records.config import Level
from pytest_dsocr.reference.protocol import unpack_case

INPUTS = ("pixels", "prompt")
SOON = ("text", "read")
MOST_AT_ONCE = 512
"""Tokens that are passed at once, for the memory that attention takes."""
SEVERAL = ("over-queries", "heads-not-merged", "block-before", "block-twice", "experts-capacity", "experts-room")
"""How mistakes of the decoder begin that do something else to one token than to several: they are decoded in steps."""
ONE_BY_ONE = re.compile(rf"(steps\.)?prefill\.({'|'.join(SEVERAL)})|steps\.(?!prefill\.)")
OF_CROPS = re.compile(rf"{RESIZED.pattern}|pixels\.(crops|grid)-|prompt\.counts-|vision_fusion\.")
"""Ids of mistakes that may show on pages with crops alone."""


def explain_texts(engine: Engine[Any], question: Question, deadline: Deadline) -> SearchResult:
    """Explain the texts of pages: what explains those before is tried on the new one, all else on every page."""
    pages = [TextPage(engine, one) for one in (question.page, *question.others)]
    reads = [page.read for page in pages]
    crops_alone = all(one.is_right or one.is_cut for one in reads) and not all(one.is_cut for one in reads)
    by_cost = sorted(pages, key=lambda page: (crops_alone and page.read.is_right, page.read.tokens))
    without = float(question.page.is_right or pages[0].right != question.page.text)

    def measure(one: Mistake) -> float:
        asked = pages[:1] if one.id in question.only else by_cost
        return 0.0 if all(page.gives(one) for page in asked if page.is_witness) else float("inf")

    every = of_text(question.level, engine.family, of_one_block(engine))
    found = sorted(every, key=lambda one: crops_alone and not OF_CROPS.match(one.id))
    answer = search(found, measure, without, question, deadline, near=0.0)[0]
    return replace(answer, places=sum(page.places for page in pages)) if answer.found else answer


def of_text(level: int, family: ModelSpec, more: Iterable[Mistake] = ()) -> Sequence[Mistake]:
    """Return what may give another text: by the subject's level the inputs and the stages are known to be right.

    In front is what is computed soon; of what costs as much, what was seen in real ports, or else thought of as such.
    ``more``, each in one block alone, comes behind those in all blocks.
    """
    ranks = {
        one.mistake: (one.family != family.name or not family.based_on) + (not one.topic)
        for one in reversed(seen(family))
    }
    kinds = _groups(family) if level < Level.STAGES else SOON
    found = [one for kind in kinds if not (level and kind in INPUTS) for one in groups(family)[kind]]
    found = [one for one in found if not one.id.startswith("text.") or one.id.partition(".")[2] in TEXTS]
    found += [*everywhere(family), *more] if level < Level.STAGES else []
    return sorted(found, key=lambda one: (_cost(one, family), ranks.get(one.id, 3 - one.id.startswith(ALL))))


def of_one_block(engine: Engine[Any]) -> Iterator[Mistake]:
    """Yield those seen in ports, each in one block alone."""
    ids = {one.mistake for one in seen(engine.family)}
    for kind in _of_blocks(engine.family):
        yield from in_one_block((one for one in groups(engine.family)[kind] if one.id in ids), engine)


def everywhere(family: ModelSpec) -> Iterator[Mistake]:
    """Yield what a port in fewer bits does to the weights of all blocks, of vision and of the decoder."""
    stages = [[one for one in groups(family)[kind] if ".weights-" in one.id] for kind in _of_blocks(family)]
    for first, *others in zip(*stages, strict=True):
        name, words = (
            first.id.partition(".")[2],
            first.words.replace(f"{family.of_views[0].title}'s blocks", "all blocks"),
        )
        yield replace(first, id=f"{ALL}.{name}", words=words, plant=partial(_in_all, (first, *others)))


def _of_blocks(family: ModelSpec) -> list[str]:
    """Return the stages that consist of blocks."""
    return [stage.name for stage in family.stages if stage.blocks]


def _groups(family: ModelSpec) -> tuple[str, ...]:
    """Return the groups that change a text, those that cost least first."""
    first, *others = family.of_views
    whole, of_blocks = ([one.name for one in others if bool(one.blocks) is blocks] for blocks in (False, True))
    return (*SOON, "prompt", "steps", FUSION, *whole, PREFILL, *of_blocks, "pixels", first.name)


def _in_all(rows: Sequence[Mistake], on: Target) -> None:
    for one in rows:
        one.plant(Target.of_stage(on.engine, on.changes, one.id.partition(".")[0]))


def _cost(one: Mistake, family: ModelSpec) -> int:
    """Return a rank by what is run again: the first encoder's blocks take most of the time."""
    group = one.id.partition(".")[0]
    is_dear = group == "pixels" or (group == family.of_views[0].name and one.part != "back")
    return 0 if group in SOON else 1 + is_dear + (ALONE in one.id)


class TextPage:
    """A page, and whether the engine reads on it what the subject read, under a mistake.

    Args:
        engine: without a mistake.
        read: what the subject read.
    """

    def __init__(self, engine: Engine[Any], read: PageRead) -> None:
        self.engine, self.read, self.case = engine, read, unpack_case(read.case)
        encode, decode = engine.tokenizer.encode, engine.tokenizer.decode
        blanks = [*takewhile(lambda token: not decode([token]).strip(), read.reference_tokens)]
        """What the reference says in front of its text, which is stripped."""
        self.ids = [*blanks, *encode(read.text), engine.policy.eos_id]
        self.is_wide = engine.model.dtype == torch.float32
        """Whether passes and steps choose the same tokens; in fewer bits they round differently."""
        self.right = clean_output(decode(read.reference_tokens))
        both = zip(self.ids, [*blanks, *encode(self.right)], strict=False)
        self.apart = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        """At which of its tokens the subject's text leaves the reference's."""

    @cached_property
    def clean(self) -> Clean:
        """What the engine makes of the page without a mistake."""
        return Clean(self.engine, inputs_under(self.engine, self.case))

    @cached_property
    def state(self) -> DecodeState[Any]:
        """The state behind the prompt."""
        return self.engine.pipeline.prefill_with(self.clean.inputs, self.clean.in_prompt)

    @cached_property
    def is_witness(self) -> bool:
        """Whether it tells mistakes apart: not where it is right, and the engine reads it otherwise, as over a tie."""
        by = reading(self.engine.family)
        return not self.read.is_right or self._reads(self.clean.inputs, self.copied(), by, stepped=False)

    @property
    def places(self) -> int:
        """In how many places the engine would go on otherwise than the subject's text, by more than a tie."""
        if self.read.is_right:
            return 0
        prompt, limits = self.clean.inputs.input_ids[0].tolist(), tolerances(str(self.engine.model.dtype)[6:])
        ban, found = self.engine.policy.ban(prompt), 0
        for logits, token in zip((self.state.logits, *self.known), self.ids, strict=False):
            own = logits[0].double()
            own[[one for one in ban.banned() if one != token]] = -torch.inf
            best = float(own.max())
            found += best - float(own[token]) > limits.ties * limits.ulp(best)
            ban.push(token)
        return found

    def gives(self, one: Mistake) -> bool:
        """Return whether the engine with a mistake reads the subject's text."""
        group, _, name = one.id.partition(".")
        if group == "text":
            return TEXTS[name][1](self.engine.tokenizer, self.read.reference_tokens) == self.read.text
        if group == "steps" and not self.apart:
            return False  # the first token is chosen in front of all steps
        with Changes() as changes:
            changes.set(pipeline, "scatter", _scatter)
            by = reading(self.engine.family, name if group == "read" else "")
            prefilled, stepped = self.prefilled(one, changes), ONE_BY_ONE.match(one.id) is not None
            known = self.known if group == "read" and self.is_wide and not (by.blind or by.redecoded) else ()
            return self._reads(*prefilled, by, known, stepped=stepped) if prefilled else self.read.is_right

    @cached_property
    def known(self) -> Sequence[Tensor]:
        """The engine's logits behind each of the subject's tokens."""
        state, along = self.copied(), Along(self.engine.pipeline, self.ids, self.apart)
        for token in self.ids[: self.case.max_new_tokens]:
            along.decode_step(state, [token])
        return along.logits

    def prefilled(self, one: Mistake, changes: Changes) -> tuple[Inputs, DecodeState[Any]] | None:
        """Return the inputs and the state behind the prompt with a mistake in it; None where it changes nothing."""
        right, model, in_prompt = self.clean.inputs, self.engine.pipeline, self.clean.in_prompt
        group, _, name = one.id.partition(".")
        if group == "read":
            return right, model.prefill_with(right, None) if name == "blind" else self.copied()
        if group == "prompt" and not name.startswith("preset-"):  # these change pixels as well
            brief = inputs_under(self.engine, self.case, one, page=load_images(self.case.page))
            if all(torch.equal(getattr(brief, name), getattr(right, name)) for name in ROWS):
                return None
            right = replace(right, input_ids=brief.input_ids, images_seq_mask=brief.images_seq_mask)
            return right, self._prefilled_behind(right)
        if group in INPUTS:
            made = inputs_under(self.engine, self.case, one)
            equal = map(torch.equal, made.tensors.values(), right.tensors.values())
            return None if all(equal) else (made, model.prefill(made))
        if group in ("prefill", "steps"):
            notes = {"prompt": right.prompt_tokens, "last": int(right.input_ids[0, -1]), "logits": self.state.logits}
            state = self.copied()
            one.plant(Target.of_stage(self.engine, changes, "prefill", self.clean.image, **notes))
            return right, state if group == "steps" else model.prefill_with(right, in_prompt)
        if in_prompt is None:
            return None
        behind = self.behind_blocks if (group, one.part) == (self.engine.family.of_views[0].name, "back") else {}
        if not behind:
            one.plant(Target.of_stage(self.engine, changes, group))
        first = self.engine.family.of_views[0].name if group == ALL else group
        features = self.clean.fused_under(first, {view: rest.compute(one.plant) for view, rest in behind.items()})
        same = features.shape == in_prompt.shape and torch.equal(features, in_prompt)
        return None if same else (right, model.prefill_with(right, features))

    @cached_property
    def behind_blocks(self) -> Mapping[tuple[str, str], Segment]:
        """What the first encoder does after its last block, for each view."""
        first = self.engine.family.of_views[0].name
        views = ("crops", "page") if self.clean.grid != (1, 1) else ("page",)
        return {(first, view): Segment(self.clean, f"{first}.{view}", has_blocks=True) for view in views}

    def _prefilled_behind(self, right: Inputs) -> DecodeState[Any]:
        """Return the state behind another prompt, computed from where it leaves the page's own if that is no image."""
        pairs = (torch.stack([one.input_ids[0], one.images_seq_mask[0]]) for one in (right, self.clean.inputs))
        new, own = (pair[:, : min(right.prompt_tokens, self.clean.inputs.prompt_tokens) - 1] for pair in pairs)
        same = int((new == own).all(0).long().cumprod(0).sum())
        if not self.is_wide or same < self.clean.image[1] or right.images_seq_mask[0, same:].any():
            return self.engine.pipeline.prefill_with(right, self.clean.fused if right.has_vision else None)
        state = self.copied()
        for _ in range(self.clean.inputs.prompt_tokens - same):
            state.cache.drop_last()
        state.cache.prompts = [right.prompt_tokens]
        state.logits = passed(self.engine.pipeline, state, right.input_ids[0, same:].tolist())[-1]
        return state

    def copied(self) -> DecodeState[Any]:
        """Return the state behind the prompt, which decoding moves on."""
        return copied(self.state)

    def _reads(
        self, inputs: Inputs, state: DecodeState[Any], by: ReadingRule, known: Sequence[Tensor] = (), *, stepped: bool
    ) -> bool:
        """Return whether the engine reads the subject's text; ends where it reads another one."""
        tokenizer, eos, most = self.engine.tokenizer, self.engine.policy.eos_id, self.case.max_new_tokens
        stepped = stepped or not self.is_wide
        model: Any = self.engine.pipeline if stepped else Along(self.engine.pipeline, self.ids, self.apart, known)
        said, is_along, text = list[int](), True, ""
        for token in by.tokens(model, state, inputs.input_ids[0].tolist(), tokenizer, eos, most):
            is_along = is_along and self.ids[len(said) : len(said) + 1] == [token]
            said.append(token)
            text = text if is_along else clean_output(tokenizer.decode(said))
            if token != eos and not self.read.text.startswith(text.rstrip("\N{REPLACEMENT CHARACTER}")):
                return False  # but for its last character, which may be incomplete
        return clean_output(tokenizer.decode(said)) == self.read.text


def copied(state: DecodeState[Any]) -> DecodeState[Any]:
    """Return a copy of a state, which decoding moves on."""
    return DecodeState(copy.deepcopy(state.cache), state.logits, state.last_embeds, [])


class Along:
    """Decodes in the place of a pipeline: known tokens in two passes, and step by step from where others are fed.

    Args:
        pipeline: decodes.
        ids: the known tokens.
        first: how many of them the first pass takes: most mistakes end there.
        known: the logits behind the first tokens; without any these are passed.
    """

    def __init__(self, pipeline: Pipeline[Any], ids: Sequence[int], first: int, known: Sequence[Tensor] = ()) -> None:
        self.pipeline, self.first, self.are_known = pipeline, first, bool(known)
        self.ids, self.logits = [*ids][: len(known) or None], [*known]
        """Those behind each of the tokens that were passed."""
        self.fed = 0

    def decode_step(self, state: DecodeState[Any], tokens: Sequence[int]) -> None:
        """Feed one token; the state has its logits."""
        if [*tokens] != self.ids[self.fed : self.fed + 1]:
            at = 0 if self.are_known else self.fed
            while at < self.fed:
                at += len(self._passed(state, at, self.fed))
            for _ in self.logits[self.fed :] if not self.are_known else ():
                state.cache.drop_last()
            self.are_known, self.ids, self.logits, self.fed = False, [], [], 0
            self.pipeline.decode_step(state, tokens)
            return
        if self.fed == len(self.logits):
            behind = self.first if self.fed < self.first else len(self.ids)
            self.logits += self._passed(state, self.fed, behind)
        state.logits = self.logits[self.fed]
        self.fed += 1

    def _passed(self, state: DecodeState[Any], first: int, behind: int) -> Sequence[Tensor]:
        """Feed as many of the known tokens at once as memory and a ring have room for."""
        room = max(1, min(MOST_AT_ONCE, (self.pipeline.model.family.cache.ring or MOST_AT_ONCE) - first))
        return passed(self.pipeline, state, self.ids[first : min(behind, first + room)])

    def redecode_last(self, state: DecodeState[Any]) -> None:
        """Decode the prompt's last token again."""
        self.pipeline.redecode_last(state)


def passed(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Sequence[int]) -> Sequence[Tensor]:
    """Feed several tokens at once; return the logits ``[1, V]`` behind each."""
    model = pipeline.model
    with pipeline.running(DECODE):
        embeds = model.embed(torch.tensor([tokens], device=model.device))
        logits: Tensor = model.decode(embeds, state.cache, all_logits=True)[0]
    return list(logits[:, None])


def _scatter(embeds: Tensor, mask: Tensor, features: Tensor, _: int) -> Tensor:
    """Put features into the prompt as the vendor's code does, which counts none that are left over."""
    return embeds.masked_scatter(mask[..., None], features.to(embeds.dtype))
