"""Describe the first wrong tensor of a case: run the subject's broken stage once more, and measure the difference."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract import PIXELS as PIXELS_OF
from pytest_dsocr.describe.choices import PASSED_OVER
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.ends import CUT_OFF, EARLY_END
from pytest_dsocr.describe.wiring import error_of
from pytest_dsocr.explain.computed import Seen
from pytest_dsocr.explain.feeding import FED
from pytest_dsocr.explain.parts import inputs_of
from pytest_dsocr.explain.question import BY_TEXT
from pytest_dsocr.models import STAGES
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.block_seams import watch_passes
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.inside import Inside, watch_back, watch_front, watch_inside
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.passes import places_of
from pytest_dsocr.records.subject_result import SubjectResult
from pytest_dsocr.run.described import described
from pytest_dsocr.run.described_steps import describe_logits, describe_prompt, shown
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.told import describe_told
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.forced_steps import without_padding
from pytest_dsocr.subjects.protocol import TextSubject

OF_EFFECTS = ("goes-on", "ends", "edited")
"""Kinds of descriptions of a text that a rule for choosing tokens may stand behind."""


def descriptions(report: CaseReport, subject: TextSubject, resources: RunResources) -> dict[str, Description]:
    """Return the description of the first divergence, by its comparison: of exact values and outputs, or of tensors."""
    if report.divergence is None:
        return {}
    found, what = described(report, resources.vocabulary, resources.pages), report.divergence.first.what
    if report.exchange.told:  # the choices are right
        told = describe_told(report.exchange.told, resources.vocabulary.tokenizer)
        return {what: told} if told else found
    is_open = not any(one.explains and one.kind not in OF_EFFECTS for one in found.values())
    if what in BY_TEXT and is_open and resources.explainer.budget_s and what not in resources.described_stages:
        again = _of_second_vision(report, subject, resources)
        chosen = () if again else resources.explainer.describe_choices(report, what)
        if not any(one.kind == FED for one in chosen):  # which later pages may refute
            resources.described_stages.add(what)
        found = {what: again} if again else _with_choices(found, what, chosen)
    if found:
        return found
    if what == "logits" and not report.divergence.begins and what not in resources.described_stages:
        resources.described_stages.add(what)
        of_steps = describe_logits(report, subject, resources)
        return {what: of_steps} if of_steps else {}
    of_tensor = describe_case(report, subject, resources)
    return {report.divergence.first.what: of_tensor[0][1]} if of_tensor else {}


def _of_second_vision(report: CaseReport, subject: TextSubject, resources: RunResources) -> Description | None:
    """Return how vision differs if it is asked again for a page that it saw before; None if it does not."""
    answer = report.exchange.answer
    inputs, first = answer.input_tensors or {}, answer.vision_tensors or {}
    if answer.level < Level.STAGES or not first:
        return None
    again = shown("vision again", lambda: CheckedSubject(subject).vision(inputs, partial=True)) or {}
    changed = [one for one in first if one in again and not _is_near(again[one], first[one], report.limits.seam)]
    if not changed:
        return None
    name = TensorName.parse(changed[0])
    seen = Seen(changed[0], again[changed[0]].cpu(), tuple(one.cpu() for one in inputs_of(name, inputs, again)))
    of_tensor = resources.explainer.describe(report, seen, resources.earlier_than(report.case))
    how = f": {of_tensor[0].text}" if of_tensor else ""
    text = f"vision gives another {changed[0]} if it is asked again for the same page{how}"
    return Description("state", text, 1.0, len(changed))


def _is_near(one: Tensor, other: Tensor, limit: float) -> bool:
    return one.shape == other.shape and error_of(one, other) <= limit


def _with_choices(
    found: dict[str, Description], what: str, of_choices: Sequence[Description]
) -> dict[str, Description]:
    """Return the description of a text with that of its tokens' choices, which is mostly the better one."""
    own = found.get(what)
    if not of_choices or (own and own.kind == "edited" and own.explains and of_choices[0].kind == PASSED_OVER):
        return found
    is_end = own is not None and own.kind == "ends" and of_choices[0].kind in (EARLY_END, CUT_OFF)
    text = f"{own.text}; {of_choices[0].text}" if own and is_end else of_choices[0].text
    return {what: replace(of_choices[0], text=text)}


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
    found = describe_tensor(what, report, subject, resources)
    if stage == PREFILL and not any(one.says_how for one in found):
        of_cache = describe_prompt(report, subject, resources)
        places = found[0].places if found else ()
        found = (replace(of_cache, places=places), *found) if of_cache else found
    return tuple((what, one) for one in found)


def describe_tensor(
    what: str, report: CaseReport, subject: TextSubject, resources: RunResources, *, alone: bool = False
) -> tuple[Description, ...]:
    """Return the descriptions of a tensor; if ``alone``, without those of its input."""
    if not _is_known(what, report):
        return ()
    seen = shown(f"{what} of {report.case.id}", lambda: _seen(what, subject, report))
    alone_seen = seen and seen._replace(alone=alone)
    return resources.explainer.describe(report, alone_seen, resources.earlier_than(report.case)) if alone_seen else ()


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
    """Run vision or the prompt once more, and return input and output of one block, if the subject shows them."""
    answer: SubjectResult = report.exchange.answer
    inputs, vision = answer.input_tensors or {}, answer.vision_tensors or {}
    assert name.block is not None
    if asked.level < Level.MODULES:
        asked.vision(inputs, partial=True)
        kept, given_by = asked.block_outputs, str(name._replace(block=name.block - 1))
        return Seen(str(name), kept[str(name)].cpu(), tuple(kept[one].cpu() for one in (given_by,) if one in kept))
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
