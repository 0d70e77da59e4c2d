"""Texts that a wrong ``text_of`` makes of other right tokens, which tell what it changes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.prompt import EOS, TextTokenizer
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.several_texts import TextPair, Told, of_told
from pytest_dsocr.run.described_steps import shown
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.protocol import TextSubject

OF_TEXT = ("text", "spans", "boxes")
"""Comparisons that ``text_of`` alone may break, as the tokens before them are right."""
PARTS, NEAR_END = 5, 4
"""Number of cuts at equal distances, and of cuts close to the end."""
BROKEN = "\N{REPLACEMENT CHARACTER}"


def with_told(report: CaseReport, subject: TextSubject, tokenizer: TextTokenizer) -> CaseReport:
    """Add what ``text_of`` makes of the reference's tokens, whole and cut, if that is the text which is wrong."""
    answer, tokens = report.exchange.answer, report.exchange.expected.token_ids
    if report.divergence is None or report.divergence.first.what not in OF_TEXT or answer.fault:
        return report
    chosen = tuple(step.token for step in answer.forced or ())
    told = _told(report, subject, tokenizer) if chosen == tokens else ()
    if not told or clean_output(told[0].text) != answer.text:
        return report
    return replace(report, exchange=replace(report.exchange, told=told))


def told_beside(report: CaseReport, subject: TextSubject, tokenizer: TextTokenizer) -> tuple[Told, ...]:
    """Return what ``text_of`` makes of the reference's tokens, if it is wrong on its own and not the first cause."""
    if report.divergence is None or report.exchange.told or report.exchange.answer.fault:
        return ()
    told = _told(report, subject, tokenizer)
    return told if told and clean_output(told[0].text) != clean_output(tokenizer.decode(told[0].tokens)) else ()


def _told(report: CaseReport, subject: TextSubject, tokenizer: TextTokenizer) -> tuple[Told, ...]:
    """Return the texts of the reference's tokens, whole and cut; nothing if the subject does not offer ``text_of``."""
    asked, tokens = CheckedSubject(subject), report.exchange.expected.token_ids
    if not tokens or not asked.tells_text:
        return ()
    lists = [tokens, *_cuts(tokens, tokenizer)]
    return shown("text_of", lambda: tuple(Told(tuple(of), asked.text_of(of)) for of in lists)) or ()


def _cuts(tokens: Sequence[int], tokenizer: TextTokenizer) -> Iterator[Sequence[int]]:
    """Yield the tokens cut at several places, with their EOS; none in the middle of a character."""
    end = tokens[-1:] if tokenizer.decode(tokens[-1:]) == EOS else ()
    inner = tokens[: len(tokens) - len(end)]
    sizes = [*(len(inner) * k // PARTS for k in range(1, PARTS)), *range(len(inner) - NEAR_END, len(inner))]
    for size in dict.fromkeys(one for one in sizes if one > 0):
        if BROKEN not in tokenizer.decode(inner[:size]):
            yield [*inner[:size], *end]


def describe_told(told: Sequence[Told], tokenizer: TextTokenizer) -> Description | None:
    """Return the change by which ``text_of`` gives its texts; None if it was not asked, or if no change does."""
    return of_told([_pair(one, tokenizer) for one in told])


def _pair(told: Told, tokenizer: TextTokenizer) -> TextPair:
    raw = tokenizer.decode(told.tokens)
    expected = raw.removesuffix(EOS)
    inner = told.tokens[:-1] if raw != expected else told.tokens
    pieces = [tokenizer.decode([one]) for one in inner]
    return TextPair(told.text.removesuffix(EOS), expected, pieces if "".join(pieces) == expected else ())
