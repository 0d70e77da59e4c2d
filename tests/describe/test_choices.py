"""Tokens that are not the best ones: drawn, penalised, or chosen after the end."""

import msgspec
import pytest
import torch

from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.describe.choices import Choices, of_choices
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import Answer
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.explain.runtime import ExplainingRuntime
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.protocol import pack_case
from tests.describe.real import PAGE, engine, random

EOS, PROMPT = 1, [7, 8, 9]
LOGITS = 5 + 3 * random(120, 50)


def first(tokens: list[int], logits: torch.Tensor = LOGITS, *, is_sure: bool = True) -> Description | None:
    return next(of_choices(Choices(tokens, logits[: len(tokens)], PROMPT, EOS), is_sure=is_sure), None)


def test_the_best_tokens_have_no_description() -> None:
    assert first(LOGITS.argmax(-1).tolist()) is None


def test_a_penalty_has_its_window_and_bounds() -> None:
    tokens = list[int]()
    for row in LOGITS:
        used = sorted({*[*PROMPT, *tokens][-16:]})
        tokens.append(int(row.index_copy(0, torch.tensor(used), row[used] / 1.1).argmax()))
    found = first(tokens, is_sure=False)
    assert found is not None
    assert found.kind == "penalised"
    low, high = (float(found.text.partition("repetition from ")[2].split()[k]) for k in (0, 2))
    assert 1 < low < 1.1 < high
    assert "within the last 16 tokens" in found.text


def test_drawn_tokens_have_a_temperature_if_the_logits_are_right() -> None:
    drawn = torch.multinomial((LOGITS / 0.7).softmax(-1), 1, generator=torch.Generator().manual_seed(3))[:, 0].tolist()
    found = first(drawn)
    assert found is not None
    assert found.kind == "drawn"
    assert 0.5 < float(found.text.rpartition(" ")[2]) < 0.9
    assert first(drawn, is_sure=False) is None


def test_ngrams_that_may_not_repeat_have_their_size_and_window() -> None:
    logits, ban, tokens = 0.1 * random(120, 50), NgramBan(3, PROMPT, 20), list[int]()
    for step, row in enumerate(logits):
        row[10 + step % 7 + 7 * (step // 30)] += 5  # the same 7 tokens again and again
        row[ban.banned()] -= 50
        tokens.append(int(row.argmax()))
        row[ban.banned()] += 50
        ban.push(tokens[-1])
    found = first(tokens, logits, is_sure=False)
    assert found is not None
    assert (found.kind, found.cases) == ("ngrams", 120)
    assert "n-grams of 3 may not repeat within " in found.text
    low, high = (int(one) for one in found.text.partition("within ")[2].split() if one.isdigit())
    assert low <= 20 <= high
    tokens[60] = 49  # no rule of n-grams refuses the best token of any step and chooses this one
    assert (other := first(tokens, logits, is_sure=False)) is None or other.kind != "ngrams"


def test_tokens_that_are_tied_in_fewer_bits_are_not_called_drawn() -> None:
    logits = LOGITS.clone()
    best = logits.argmax(-1)
    tokens = best.tolist()
    for step in range(0, 100, 10):
        tokens[step] = (tokens[step] + 1) % 50
        logits[step, tokens[step]] = logits[step, best[step]] = 12.0
        logits[step, best[step]] += 2e-3
    found = first(tokens, logits)
    assert found is not None
    assert (found.kind, "bfloat16" in found.text) == ("tied", True)
    one = [*tokens[:1], *best.tolist()[1:]]
    assert getattr(first(one, logits), "kind", "") != "tied", "one nearly equal token shows no rounding"


def test_tokens_that_no_temperature_draws_are_not_called_drawn() -> None:
    logits = LOGITS.clone()
    best = logits.argmax(-1)
    logits.scatter_(1, best[:, None], 60.0)
    tokens = best.tolist()
    tokens[::15] = [(one + 1) % 50 for one in tokens[::15]]
    assert len(tokens[::15]) >= 8
    found = first(tokens, logits)
    assert found is None or found.kind != "drawn"


def test_an_end_that_was_not_chosen_is_told_of() -> None:
    logits = LOGITS.clone()
    logits[80, EOS] = 99
    tokens = [token if step != 80 else 30 for step, token in enumerate(logits[:84].argmax(-1).tolist())]
    found = first(tokens, logits)
    assert found is not None
    assert found.text == "EOS was best at step 81 and not chosen; 4 tokens more follow"


def without(refused: list[int]) -> list[int]:
    """Return the best tokens besides some."""
    return LOGITS.index_fill(1, torch.tensor(refused), -torch.inf).argmax(-1).tolist()


def test_tokens_that_are_never_chosen_are_named() -> None:
    best = LOGITS.argmax(-1).tolist()
    refused = [max({*best}, key=best.count), 13]
    found = first(without(refused), is_sure=False)
    assert found is not None
    assert (found.kind, found.cases) == ("never-chosen", sum(one in refused for one in best) - 2)
    assert f"if token {min(refused)} and token {max(refused)} may never be chosen" in found.text
    tokens = without(refused)
    tokens[best.index(refused[0])] = refused[0]
    assert getattr(first(tokens, is_sure=False), "kind", "") != "never-chosen", "it is chosen once"


def test_an_early_end_has_the_rank_of_eos() -> None:
    logits = LOGITS.clone()
    logits[:, EOS] = logits.topk(9).values[:, -1] - 0.001  # the 9th token of each step
    tokens = [*logits[:80].argmax(-1).tolist(), EOS]
    found = first(tokens, logits, is_sure=False)
    assert found is not None
    assert found.kind == "early-end"
    assert found.text.startswith("the text ends after 80 tokens; if an EOS ended it, that was of rank 10, ")
    assert "it was nearer at step " in found.text
    logits[:80, EOS] -= 9
    favoured = first(tokens, logits, is_sure=False)
    assert favoured is not None
    low, high = favoured.text.partition("as if ")[2].split()[:3:2]
    assert float(low) < float(high)
    tokens[40] = (tokens[40] + 1) % 50
    assert getattr(first(tokens, logits, is_sure=False), "kind", "") != "early-end"


@pytest.mark.parametrize(
    ("size", "rank", "ends", "kind"),
    [
        (81, 10, (), "early-end"),
        (81, 10, (80,), "early-end"),
        (81, 70, (), "cut-off"),
        (81, 10, (81, 81), "cut-off"),
        (64, 10, (), "cut-off"),
        (100, 10, (), "cut-off"),
    ],
)
def test_a_text_that_a_limit_cut_off_has_no_eos(size: int, rank: int, ends: tuple[int, ...], kind: str) -> None:
    logits = 5 + 3 * random(120, 90)
    logits[:, EOS] = logits.topk(rank - 1).values[:, -1] - 0.001
    tokens = [*logits[:size].argmax(-1).tolist(), EOS]
    found = next(of_choices(Choices(tokens, logits[: size + 1], PROMPT, EOS, ends=ends), is_sure=True))
    assert found.kind == kind
    assert "chosen at step" not in found.text
    assert (f"ends after {size} tokens without an EOS" in found.text) is (kind == "cut-off")
    assert ("as 2 pages read before" in found.text) is (len(ends) > 1)


def test_few_tokens_that_are_not_the_best_are_named_if_the_logits_are_right() -> None:
    tokens = LOGITS.argmax(-1).tolist()
    best, tokens[60] = tokens[60], int(LOGITS[60].topk(3).indices[2])
    found = first(tokens)
    assert found is not None
    assert found.text.startswith(f"at step 61 token {best} is best, and token {tokens[60]}, of rank 3, is chosen")
    assert first(tokens, is_sure=False) is None


def right_ids() -> tuple[int, ...]:
    """Return the tokens of the page."""
    case = make_case(PAGE, "free", "tiny", family=DEEPSEEK_OCR)
    return tuple(engine().run(PAGE, prompt=case.prompt, preset=case.preset).token_ids)


def test_a_text_that_goes_on_is_followed_by_the_explaining_engine() -> None:
    case = make_case(PAGE, "free", "tiny", family=DEEPSEEK_OCR)
    packed = pack_case(case)
    ids = right_ids()
    text = clean_output(engine().tokenizer.decode(ids))
    read = PageRead({**packed, "preset": dict(packed["preset"])}, f"{text} +", ids)
    answer = ExplainingRuntime.load("mini").describe_choices(msgspec.to_builtins(read), [], is_sure=True)
    [found], lines = msgspec.convert(answer, Answer)
    assert not lines
    assert found.text == f"EOS was best at step {len(ids)} and not chosen; 1 token more follows"


def test_a_text_that_is_cut_after_any_token_is_not_said_to_have_chosen_another_one() -> None:
    """A text that is cut after a blank is made of other tokens."""
    case = make_case(PAGE, "free", "tiny", family=DEEPSEEK_OCR)
    packed, runtime = pack_case(case), ExplainingRuntime.load("mini")
    ids, decode = right_ids(), engine().tokenizer.decode
    sizes = [k for k in range(2, len(ids)) if decode(ids[:k]) != clean_output(decode(ids[:k]))]
    assert sizes
    for size in (sizes[0], sizes[0] + 1):
        read = PageRead({**packed, "preset": dict(packed["preset"])}, clean_output(decode(ids[:size])), ids)
        answer = runtime.describe_choices(msgspec.to_builtins(read), [], is_sure=True)
        found, lines = msgspec.convert(answer, Answer)
        assert not lines
        assert [one.kind for one in found] == ["cut-off"], (size, found)
        assert "without an EOS" in found[0].text
