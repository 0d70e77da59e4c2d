"""Causes of a case besides that of its first divergence, each with an explanation or a description."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_dsocr.compare.case import CaseReport, Explanation, FurtherCause
from pytest_dsocr.compare.divergence import is_cut
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.contract.markup import clean_output, to_mmd
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.several_texts import Told
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.describe.texts import CHANGES, is_partial, of_texts
from pytest_dsocr.describe.undone import undone
from pytest_dsocr.explain.question import TEXT, question_of
from pytest_dsocr.explain.sentence import NOT_SEARCHED, beside
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.run.described import relation
from pytest_dsocr.run.described_steps import describe_logits
from pytest_dsocr.run.described_tensors import describe_tensor
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.told import describe_told, told_beside
from pytest_dsocr.subjects.protocol import TextSubject

UNDONE = "with that change of the text undone"


def further_causes(report: CaseReport, subject: TextSubject, resources: RunResources) -> tuple[FurtherCause, ...]:
    """Return further causes, in the order of the stages; nothing if this stage was followed on an earlier page.

    Below L2 only inputs can be wrong on their own, a text that does not follow from them, and a file that is not made
    of the subject's own text.
    """
    divergence, exchange = report.divergence, report.exchange
    if divergence is None or report.fault is not None or report.case.is_several or not resources.explainer.budget_s:
        return ()
    first, outputs = divergence.scene.first, _outputs(report)
    key = first.stage, is_cut(exchange.expected.inputs.shapes)
    has_tensors = exchange.answer.level >= Level.INPUTS and exchange.answer.input_tensors is not None
    if first.name.kind is not ComparisonKind.VALUE or key in resources.followed:
        return ()
    told = told_beside(report, subject, resources.vocabulary.tokenizer)
    rest = _undone(report)
    if not (has_tensors or outputs or told or rest):
        return ()
    resources.followed.add(key)
    if rest:
        return (*_of_rest(report, rest, resources),)
    found = resources.explainer.further(report, outputs) if has_tensors or outputs else ()
    causes = ((one, _described(one.what, report, subject, resources)) for one in found)
    every = [FurtherCause(beside(one, [own] if own else []) or one, own) for one, own in causes]
    at = next((k for k, one in enumerate(every) if one.what == MMD), len(every))
    return (*every[:at], *_of_text(report, told, resources), *every[at:])


def _undone(report: CaseReport) -> str:
    """Return a text alone without a change that explains it in part; empty if there is none, or nothing is left."""
    answer, expected = report.exchange.answer, report.exchange.expected.output.text
    if report.described is None or not is_partial(report.described) or answer.level >= Level.STAGES:
        return ""
    return undone(answer.text, expected, CHANGES[report.described.kind][1]) or ""


def _of_rest(report: CaseReport, text: str, resources: RunResources) -> Iterator[FurtherCause]:
    """Yield why a text is still wrong once a change of it is undone."""
    if (question := question_of(report, resources.explainer.budget_s)) is None:
        return
    asked = replace(question, what=TEXT, page=replace(question.page, text=text))
    found = resources.explainer.answered(asked) or Explanation(NOT_SEARCHED, TEXT)
    mistakes = found.mistakes if found.words else ()  # too many to name one
    told = f"{found.text}; {UNDONE}" if mistakes else f"{UNDONE}, {found.text}"
    yield FurtherCause(replace(found, text=told, mistakes=mistakes, is_proven=False))


def _of_text(report: CaseReport, told: Sequence[Told], resources: RunResources) -> Iterator[FurtherCause]:
    """Yield why ``text_of`` gives wrong texts of the reference's tokens, if it does."""
    if not told or (question := question_of(report, resources.explainer.budget_s)) is None:
        return
    actual, tokenizer = clean_output(told[0].text), resources.vocabulary.tokenizer
    page = replace(question.page, text=actual, told=tuple(told))
    found = resources.explainer.answered(replace(question, what=TEXT, page=page))
    own = describe_told(told, tokenizer) or simplest(of_texts(actual, clean_output(tokenizer.decode(told[0].tokens))))
    yield FurtherCause(found or Explanation(NOT_SEARCHED, TEXT), own)


def _described(what: str, report: CaseReport, subject: TextSubject, resources: RunResources) -> Description | None:
    """Return the description of values that are wrong on their own."""
    answer = report.exchange.answer
    if what == MMD:
        return simplest(of_texts(answer.mmd or "", to_mmd(answer.text, report.case.family.form)))
    if what == "logits":
        return describe_logits(report, subject, resources, alone=True)
    own = relation(what, report, resources.vocabulary) if what in COMPARED else None
    return own or next(iter(describe_tensor(what, report, subject, resources, alone=True)), None)


def _outputs(report: CaseReport) -> Sequence[str]:
    """Return wrong outputs to look at on their own.

    These are choices of tokens, the text of a subject with wrong inputs and nothing between, and a file that is not
    made of the text.
    """
    assert report.divergence is not None
    answer, form = report.exchange.answer, report.case.family.form
    wrong = {one.what for one in report.comparisons if one.verdict is Verdict.WRONG} - {report.divergence.first.what}
    is_own = answer.mmd is None or answer.mmd == to_mmd(answer.text, form)
    is_of_inputs = answer.level is Level.INPUTS and report.divergence.first.what in COMPARED
    return [*({"tokens"} & wrong), *({TEXT} & wrong if is_of_inputs else ()), *({MMD} & wrong if not is_own else ())]
