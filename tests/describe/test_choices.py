"""Tokens that are not the best ones: drawn, penalised, or chosen after the end."""

import msgspec
import torch

from pytest_dsocr.describe.choices import Choices, of_choices
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.explain import ExplainingRuntime
from pytest_dsocr.explain.question import PageRead
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


def test_an_end_that_was_not_chosen_is_told_of() -> None:
    logits = LOGITS.clone()
    logits[80, EOS] = 99
    tokens = [token if step != 80 else 30 for step, token in enumerate(logits[:84].argmax(-1).tolist())]
    found = first(tokens, logits)
    assert found is not None
    assert found.text == "EOS was best at step 81 and not chosen; 4 tokens more follow"


def test_a_text_that_goes_on_is_followed_by_the_explaining_engine() -> None:
    case = make_case(PAGE, "free", "tiny", family=DEEPSEEK_OCR)
    packed = pack_case(case)
    right = engine().run(PAGE, prompt=case.prompt, preset=case.preset)
    read = PageRead({**packed, "preset": dict(packed["preset"])}, f"{right.text} +", tuple(right.token_ids))
    [found] = ExplainingRuntime.load("mini").describe_choices(msgspec.to_builtins(read), is_sure=True)
    assert found["text"] == f"EOS was best at step {len(right.token_ids)} and not chosen; 1 token more follows"
