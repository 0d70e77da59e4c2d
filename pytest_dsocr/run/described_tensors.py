"""Describe the first wrong tensor or step of a case: run the broken stage once more, and measure the difference."""

from collections.abc import Sequence

import torch
from torch import OutOfMemoryError, Tensor

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.tokens import logit_errors
from pytest_dsocr.contract import PIXELS as PIXELS_OF
from pytest_dsocr.describe.cache import describe_steps, rows_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.described import Seen
from pytest_dsocr.explain.parts import inputs_of
from pytest_dsocr.explain.question import BY_TEXT
from pytest_dsocr.models import STAGES
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.block_seams import watch_passes
from pytest_dsocr.records.config import Level, NotOfferedError, SubjectFaultError
from pytest_dsocr.records.inside import Inside, watch_back, watch_front, watch_inside
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.passes import places_of
from pytest_dsocr.records.subject_result import SubjectResult
from pytest_dsocr.run.described import described
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.forced_steps import without_padding
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import TextSubject

OF_EFFECTS = ("goes-on", "edited")
"""Kinds of descriptions of a text that a rule for choosing tokens may stand behind."""
MOST_EARLIER = 2
"""Number of earlier pages that are looked for in a wrong tensor."""
MOST_AFTER = 64
"""Number of steps after the first wrong one that fill the cache."""


def descriptions(report: CaseReport, subject: TextSubject, resources: RunResources) -> dict[str, Description]:
    """Return the description of the first divergence, by its comparison: of exact values and outputs, or of tensors."""
    if report.divergence is None:
        return {}
    found, what = described(report, resources.vocabulary, resources.pages), report.divergence.first.what
    is_open = not any(one.explains and one.kind not in OF_EFFECTS for one in found.values())
    if what in BY_TEXT and is_open and resources.explainer.budget_s and what not in resources.described_stages:
        resources.described_stages.add(what)
        of_choices = resources.explainer.describe_choices(report, what)
        found = {what: of_choices[0]} if of_choices else found
    if found:
        return found
    if what == "logits" and what not in resources.described_stages:
        resources.described_stages.add(what)
        of_steps = describe_logits(report, subject, resources)
        return {what: of_steps} if of_steps else {}
    of_tensor = describe_case(report, subject, resources)
    return {report.divergence.first.what: of_tensor[0][1]} if of_tensor else {}


def describe_case(
    report: CaseReport, subject: TextSubject, resources: RunResources
) -> tuple[tuple[str, Description], ...]:
    """Return the descriptions of the first wrong tensor or pixels, each with its comparison's name.

    Return nothing if explanations are off, if another tensor of the stage was described before, or if the subject does
    not offer the tensor's values.
    """
    if report.divergence is None or report.fault is not None or not resources.explainer.budget_s:
        return ()
    what = report.divergence.begins or report.divergence.first.what
    stage = TensorName.parse(what).stage
    if stage in resources.described_stages or not _is_known(what, report):
        return ()
    resources.described_stages.add(stage)
    return tuple((what, one) for one in describe_tensor(what, report, subject, resources))


def describe_tensor(
    what: str, report: CaseReport, subject: TextSubject, resources: RunResources, *, alone: bool = False
) -> tuple[Description, ...]:
    """Return the descriptions of a tensor; if ``alone``, without those of its input."""
    if not _is_known(what, report):
        return ()
    try:
        with torch.no_grad():
            seen = _seen(what, subject, report)
    except NotOfferedError:
        return ()
    except (SubjectFaultError, MachineError, OutOfMemoryError) as error:
        current().note(f"{what} of {report.case.id} is not described: {str(error).splitlines()[0]}")
        return ()
    earlier = [one for one in resources.read[-MOST_EARLIER:] if one != report.case and not one.is_several]
    return resources.explainer.describe(report, seen._replace(alone=alone), earlier) if seen else ()


def _is_known(what: str, report: CaseReport) -> bool:
    """Return whether both sides have values of this name."""
    expected, answer = report.exchange.expected, report.exchange.answer
    if answer.input_tensors is None or answer.level < Level.INPUTS:
        return False
    return what in PIXELS_OF or (what in expected.seams and what in answer.seams)


def _seen(what: str, subject: TextSubject, report: CaseReport) -> Seen | None:
    """Return the subject's tensor with the inputs of what returned it; None if the subject does not show them."""
    answer, name = report.exchange.answer, TensorName.parse(what)
    inputs, vision = answer.input_tensors or {}, answer.vision_tensors or {}
    if what in PIXELS_OF:
        return Seen(what, inputs[what].cpu())
    if name.block is not None:
        return _of_block(name, CheckedSubject(subject), report)
    if name.stage == PREFILL:
        fused = vision.get(FUSION)
        _, logits = CheckedSubject(subject).prefill(inputs, fused)
        given = () if fused is None else (fused.cpu(),)
        return Seen(what, without_padding(logits, report.exchange.expected).cpu(), given)
    if what not in vision:
        return None
    takes = tuple(one.cpu() for one in inputs_of(name, inputs, vision))
    return Seen(what, vision[what].cpu(), takes, inside=_inside_stage(name, CheckedSubject(subject), report))


def _inside_stage(name: TensorName, asked: CheckedSubject, report: CaseReport) -> Inside:
    """Run vision once more, and return the calls inside of a stage, after its blocks if it has any."""
    if asked.level < Level.MODULES:
        return Inside()
    inputs, vision = report.exchange.answer.input_tensors or {}, report.exchange.answer.vision_tensors or {}
    with watch_back(asked.subject.module, name) as calls:
        asked.vision(inputs, partial=True)
    gave = vision[str(name)][:1].cpu()
    return next((one for one in calls if one.gave.equal(gave)), Inside())


def _of_block(name: TensorName, asked: CheckedSubject, report: CaseReport) -> Seen | None:
    """Run vision or the prompt once more, and return input and output of one block."""
    answer: SubjectResult = report.exchange.answer
    inputs, vision = answer.input_tensors or {}, answer.vision_tensors or {}
    assert name.block is not None
    block = name.stage, name.block
    places = places_of(report.exchange.expected.seams, inputs) or {}
    find, stages = asked.subject.module, {stage.name: stage for stage in STAGES}
    with (
        watch_passes(find, {block: places[block]}) as passes,
        watch_inside(find(f"{stages[name.stage].blocks}.{name.block}")) as calls,
        watch_front(find, name) as front,
    ):
        if name.stage == PREFILL:
            asked.prefill(inputs, vision.get(FUSION))
        else:
            asked.vision(inputs, partial=True)
    found = next((one for one in passes if one.name == str(name)), None)
    if found is None:
        return None
    given, gave = found.given.cpu(), found.gave.cpu()
    inside = next((one for one in calls if one.gave.equal(gave[:1]) and one.given.equal(given[:1])), Inside())
    before = next((one for one in front if one.gave.equal(given[:1])), Inside())
    return Seen(str(name), gave, (given,), inside=inside, front=before)


def describe_logits(report: CaseReport, subject: TextSubject, resources: RunResources) -> Description | None:
    """Return which slots of the cache differ, or which steps; None if neither is known."""
    answer, expected = report.exchange.answer, report.exchange.expected
    errors, allowed = logit_errors(answer.forced or (), expected.steps), report.limits.logits
    first = next((k for k, one in enumerate(errors) if not one <= allowed), 0)
    if not first or answer.input_tensors is None or not resources.explainer.budget_s:
        return None
    tokens = expected.token_ids[: min(first + MOST_AFTER, len(errors) - 1)]
    of_cache = None
    try:
        with torch.no_grad():
            of_cache = resources.explainer.describe_cache(report, tokens, _kept(report, subject, tokens))
    except NotOfferedError:
        pass
    except (SubjectFaultError, MachineError, OutOfMemoryError) as error:
        current().note(f"the cache of {report.case.id} is not described: {str(error).splitlines()[0]}")
    if of_cache is not None and of_cache.explains:
        return of_cache
    return describe_steps(errors, allowed, of_cache is not None)


def _kept(report: CaseReport, subject: TextSubject, tokens: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return the subject's keys and values of each layer ``[S, C]``, after these tokens."""
    answer, asked = report.exchange.answer, CheckedSubject(subject)
    state, _ = asked.prefill(answer.input_tensors or {}, (answer.vision_tensors or {}).get(FUSION))
    for token in tokens:
        asked.step(state, token)
    return [(rows_of(keys).cpu(), rows_of(values).cpu()) for keys, values in KvProbe(state).layers]
