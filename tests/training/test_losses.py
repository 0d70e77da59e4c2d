"""The losses, of a model whose vision tokens and hidden states are the logits themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ci.training import losses as losses_module
from ci.training.batch import Asked
from ci.training.lexicon import LABELS
from ci.training.losses import AnswerLosses, Ids, VisionLosses, answer_losses, near, vision_losses
from ci.training.network import Seen

VOCABULARY = 1100
FIRST_NUMBER, EMPTY = 50, 2
LAYOUT = 1 + len(LABELS) + 8
LOUD = 30.0
"""A logit beside which zeros are nothing."""
IDS = Ids(torch.arange(FIRST_NUMBER, FIRST_NUMBER + 1000), EMPTY)
MODEL: Any = SimpleNamespace(lm_head=lambda x: x, model=SimpleNamespace(norm=lambda x: x[..., :VOCABULARY]))
HEADS: Any = SimpleNamespace(
    following=lambda x: x[..., VOCABULARY : 2 * VOCABULARY], layout=lambda x: x[..., 2 * VOCABULARY :]
)
ASKED = Asked(
    ids=torch.zeros(2, 6, dtype=torch.int64),
    image_tokens=8,
    blind=torch.zeros(2, dtype=torch.bool),
    asked_text=torch.tensor([0, 1, 7, 8]),
    text=torch.tensor([20, 21, 22, 23]),
    asked_number=torch.tensor([2, 3, 9]),
    number=torch.tensor([0, 500, 999]),
    word_at=torch.tensor([0, 1, 9]),
    word=torch.tensor([30, 31, 32]),
    following_at=torch.tensor([0, 9]),
    following=torch.tensor([31, 33]),
    empty_at=torch.tensor([2, 10]),
    labels=torch.tensor([[0, 3, 0], [1, 0, 11]]),
    rects=torch.tensor([0.25, 0.5, 0.75, 1.0]).expand(2, 3, 4),
    edges=torch.tensor([-0.5, 0.0, 0.5, 1.5]).expand(2, 3, 4),
    first_page_token=4,
)


def perfect() -> Seen:
    """What gives every answer as well as can be."""
    hidden, vision = torch.zeros(12, VOCABULARY), torch.zeros(16, 2 * VOCABULARY + LAYOUT)
    hidden[ASKED.asked_text, ASKED.text] = LOUD
    hidden[ASKED.asked_number, FIRST_NUMBER : FIRST_NUMBER + 1000] = near(ASKED.number).clamp_min(1e-12).log() + LOUD
    vision[ASKED.word_at, ASKED.word] = LOUD
    vision[ASKED.following_at, VOCABULARY + ASKED.following] = LOUD
    vision[ASKED.empty_at, EMPTY] = LOUD
    vision = vision.view(2, 8, -1)
    layout = vision[:, 4:7, 2 * VOCABULARY :]
    layout[..., : 1 + len(LABELS)] = LOUD * F.one_hot(ASKED.labels, 1 + len(LABELS))
    layout[..., -8:-4] = ASKED.rects.logit(eps=1e-6)
    layout[..., -4:] = ASKED.edges
    return Seen(vision, hidden.view(2, 6, -1), torch.tensor(1.0))


def measured(seen: Seen) -> dict[str, float]:
    of_answer = answer_losses(cast("Any", MODEL), seen, ASKED, IDS)
    of_vision = vision_losses(cast("Any", MODEL), HEADS, seen, ASKED, IDS)
    return {f.name: float(getattr(found, f.name)) for found in (of_answer, of_vision) for f in fields(found)}


def test_a_perfect_answer_has_the_least_loss() -> None:
    found = measured(perfect())
    entropy = -(near(ASKED.number) * near(ASKED.number).clamp_min(1e-30).log()).sum(dim=1).mean()
    assert found.pop("coordinates") == pytest.approx(float(entropy), abs=1e-4)
    assert [found.pop(name) for name in ("text_right", "words_right", "imbalance")] == [1, 1, 1]
    assert found == pytest.approx(dict.fromkeys(found, 0.0), abs=1e-5)


def say(where: str, row: int, token: int, instead: int) -> Callable[[Seen], None]:
    """Say another token at a place."""

    def change(seen: Seen) -> None:
        logits = getattr(seen, where).flatten(0, 1)[row]
        logits[token], logits[instead] = 0.0, LOUD

    return change


def insist(row: int, token: int) -> Callable[[Seen], None]:
    """Say a token louder than all that the decoder says there."""

    def change(seen: Seen) -> None:
        seen.hidden.flatten(0, 1)[row, token] = 3 * LOUD

    return change


def shift(first: int, last: int, by: float) -> Callable[[Seen], None]:
    """Move what the layout head says of the cell that has a block."""

    def change(seen: Seen) -> None:
        seen.vision[0, 5, 2 * VOCABULARY :][first:last] += by

    return change


WRONG: dict[str, tuple[Callable[[Seen], None], set[str]]] = {
    "a text token": (say("hidden", 7, 22, 25), {"text", "text_right"}),
    "a number instead of text": (say("hidden", 7, 22, FIRST_NUMBER + 3), {"text", "text_right"}),
    "a coordinate": (insist(3, FIRST_NUMBER + 700), {"coordinates", "coordinate_error"}),
    "text instead of a coordinate": (insist(3, 20), {"coordinates"}),
    "a word": (say("vision", 1, 31, 30), {"words", "words_right"}),
    "a next word": (say("vision", 9, VOCABULARY + 33, VOCABULARY + 30), {"following"}),
    "a word where there is none": (say("vision", 10, EMPTY, 30), {"empty"}),
    "a label": (shift(0, 1, 2 * LOUD), {"layout"}),
    "a box": (shift(-8, -4, 1.0), {"rects"}),
    "edges": (shift(-4, LAYOUT, 0.5), {"edges"}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_thing_moves_its_own_loss(wrong: str) -> None:
    change, moved = WRONG[wrong]
    before, seen = measured(perfect()), perfect()
    change(seen)
    after = measured(seen)
    assert {name for name in after if abs(after[name] - before[name]) > 1e-4} == moved
    assert all(after[name] > before[name] for name in moved if not name.endswith("right"))
    assert all(after[name] < before[name] for name in moved if name.endswith("right"))


@pytest.mark.parametrize(
    ("row", "column"), [(3, 0), (15, VOCABULARY), (0, 2 * VOCABULARY), (8, 2 * VOCABULARY + LAYOUT - 1)]
)
def test_what_is_not_asked_costs_nothing(row: int, column: int) -> None:
    seen = perfect()
    seen.vision.view(16, -1)[row, column] += LOUD
    assert measured(seen) == measured(perfect())


def test_boxes_of_cells_without_a_block_cost_nothing() -> None:
    seen = perfect()
    seen.vision[0, 4, 2 * VOCABULARY + 1 + len(LABELS) :] += 3.0
    assert measured(seen) == measured(perfect())


def test_a_coordinate_error_is_a_mean_distance() -> None:
    seen = perfect()
    insist(3, FIRST_NUMBER + 512)(seen)
    assert measured(seen)["coordinate_error"] == pytest.approx(12 / 3)


def test_a_batch_without_words_or_answers_costs_nothing_for_them() -> None:
    none = torch.tensor([], dtype=torch.int64)
    asked = ASKED._replace(asked_text=none, text=none, asked_number=none, number=none, word_at=none, word=none)
    asked = asked._replace(following_at=none, following=none, empty_at=none)
    of_answer = answer_losses(cast("Any", MODEL), perfect(), asked, IDS)
    of_vision = vision_losses(cast("Any", MODEL), HEADS, perfect(), asked, IDS)
    found = (of_answer.text, of_answer.coordinates, of_vision.words, of_vision.following, of_vision.empty)
    assert [float(loss) for loss in found] == [0.0] * 5


@pytest.mark.parametrize("value", [0, 1, 2, 500, 998, 999])
def test_near_is_a_hill_over_the_value(value: int) -> None:
    [hill] = near(torch.tensor([value]))
    assert float(hill.sum()) == pytest.approx(1)
    assert int(hill.argmax()) == value
    assert float(hill[abs(torch.arange(1000) - value) <= 3].sum()) > 0.99
    if value == 500:
        assert torch.equal(hill[501:600], hill[401:500].flip(0))
        variance = float((hill * (torch.arange(1000) - value) ** 2).sum())
        assert variance == pytest.approx(losses_module.COORDINATE_SPREAD**2, rel=0.01)


def scalars(**values: float) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in values.items()}


def test_totals_weigh_and_add() -> None:
    of_answer = AnswerLosses(**scalars(text=1, coordinates=10, imbalance=100, text_right=1e6, coordinate_error=1e6))
    assert float(of_answer.total()) == pytest.approx(1 + 10 + 0.02 * 100)
    named = scalars(words=1, following=10, empty=100, layout=1000, rects=2000, edges=3000, words_right=1e6)
    assert float(VisionLosses(**named).total(3.0)) == pytest.approx(3 * (1 + 5 + 30) + 0.5 * (1000 + 10_000 + 30_000))
