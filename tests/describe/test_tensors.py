"""Relations planted in real tensors are found, and no relation is found where another mistake was planted."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe import order
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import Measuring, measured_in_time, measuring
from pytest_dsocr.describe.pair import RowPair
from pytest_dsocr.describe.rounding import truncated
from pytest_dsocr.describe.tensors import describe_tensor, of_earlier
from tests.describe.real import block, clean, random

WHATS = ("clip.page/0", "prefill/2")


def pair_of(what: str, actual: Callable[[Tensor], Tensor] = lambda right: right) -> RowPair:
    """Return the expected output of a block next to a changed one."""
    gave, given = block(what)
    grid = tuple(gave.shape[1:3]) if gave.ndim == 4 else (8, 8) if what.startswith("clip") else None
    right, given = (one.flatten(1, -2) for one in (gave, given))
    image = clean().inputs.images_seq_mask[0]
    places = {"the image's tokens": image, "the text's tokens": ~image} if what.startswith("prefill") else {}
    noun = "token" if places else "position"
    return RowPair(actual(right.clone()), right, noun, grid, places, given)  # type: ignore[arg-type]


def described(what: str, actual: Callable[[Tensor], Tensor]) -> Description:
    """Describe a changed output."""
    found = describe_tensor(pair_of(what, actual))
    assert found is not None
    return found


def test_an_error_costs_one_relation_and_is_raised_where_nobody_takes_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "reordered_rows", _failing)
    with measuring(Measuring()) as now:
        found = described("prefill/2", lambda right: right + right[0, 3])
    assert found.kind == "vector"
    assert [line.partition(": ")[2] for line in now.lines] == [
        "ZeroDivisionError: division by zero; please report this"
    ]
    with pytest.raises(ZeroDivisionError):
        described("prefill/2", lambda right: right + right[0, 3])


def _failing(pair: RowPair) -> Description:
    raise ZeroDivisionError("division by zero")


def test_describers_that_take_long_end_with_the_time() -> None:
    with measuring(Measuring(lambda: True)) as now:
        assert [*measured_in_time(_failing, pair_of("prefill/2"))] == []
    assert len(now.lines) == 1


def put(right: Tensor, rows: slice, values: Tensor | float) -> Tensor:
    """Return a tensor with other values in some rows."""
    right[:, rows] = values
    return right


def of_plane(right: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the 8 x 8 positions after the class token."""
    plane = right[:, 1:].unflatten(1, (8, 8))
    return torch.cat([right[:, :1], change(plane).flatten(1, 2)], 1)


def quantised(right: Tensor) -> Tensor:
    """Round to int8 with a scale of each row."""
    scale = right.abs().amax(-1, keepdim=True) / 127
    return (right / scale).round() * scale


ANYWHERE: Mapping[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "factor": (lambda x: 1.25 * x, "scaled", "times 1.25"),
    "offset": (lambda x: x - 0.5, "offset", "minus 0.5"),
    "line": (lambda x: 1.5 * x - 0.2, "scaled", "times 1.5, minus 0.2"),
    "zero": (torch.zeros_like, "zero", "every value is zero"),
    "row zero": (lambda x: put(x, slice(5, 6), 0.0), "zero", "5 of "),
    "channel zero": (lambda x: x * (torch.arange(x.shape[2]) != 9), "zero", "channel 9 of "),
    "last first": (lambda x: x.roll(1, 1), "rolled", "comes first; all others are one"),
    "first last": (lambda x: x.roll(-1, 1), "rolled", "comes last; all others are one"),
    "five earlier": (lambda x: x.roll(-5, 1), "rolled", "5 earlier, and the first 5 come last"),
    "reverse": (lambda x: x.flip(1), "flipped", ""),
    "later without a turn": (lambda x: torch.cat([x[:, :1], x[:, :-1]], 1), "shifted", "one earlier (0 to "),
    "exchanged": (lambda x: x[:, [0, 1, 3, 2, *range(4, x.shape[1])]], "exchanged", "2 and 3 are exchanged"),
    "vector": (lambda x: x + random(x.shape[2]), "vector", "one vector is added to every"),
    "channels' factors": (lambda x: x * (1 + random(x.shape[2]).abs()), "scaled-channels", "a factor of its own"),
    "rows' factors": (lambda x: x * (1 + random(x.shape[1], 1).abs()), "scaled-rows", "a factor of its own"),
    "bfloat16": (lambda x: x.bfloat16().float(), "rounded", "to bfloat16"),
    "cut": (lambda x: truncated(x, torch.bfloat16), "rounded", "to bfloat16 by truncation"),
    "int8": (quantised, "rounded", "int8 with a scale for each row"),
    "one direction": (lambda x: x + random(1, x.shape[1], 1) * random(x.shape[2]), "low-rank", "one direction"),
    "channel": (lambda x: x + random(*x.shape) * (torch.arange(x.shape[2]) == 3), "confined", "channel 3 of"),
    "channels moved": (lambda x: x.roll(1, 2), "rolled", "channels comes first"),
    "from a row on": (lambda x: put(x, slice(-5, None), random(1, 5, x.shape[2])), "confined", "those from "),
    "a row taken": (lambda x: put(x, slice(8, 10), x[:, 3:4].clone()), "exchanged", "8 to 9 each hold the expected"),
}


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", ANYWHERE)
def test_a_planted_relation_is_found(name: str, what: str) -> None:
    plant, kind, words = ANYWHERE[name]
    found = described(what, plant)
    assert (found.kind, found.explains) == (kind, True), found.text
    assert words in found.text


OF_CLIP: Mapping[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "transposed": (lambda x: of_plane(x, lambda p: p.transpose(1, 2)), "transposed", "8 x 8 positions are transposed"),
    "mirrored": (lambda x: of_plane(x, lambda p: p.flip(2)), "flipped", "left to right"),
    "line": (lambda x: of_plane(x, lambda p: p.roll(1, 2)), "rolled", "one to the right in their plane"),
    "column": (lambda x: of_plane(x, lambda p: p + 1.0 * (torch.arange(8) == 7)[:, None]), "offset", "column 7 of 8"),
    "every eighth": (
        lambda x: x + random(*x.shape) * (torch.arange(65) % 6 == 3)[:, None],
        "confined",
        "every 6th, from 3 on",
    ),
}


@pytest.mark.parametrize("name", OF_CLIP)
def test_a_relation_of_the_plane_of_positions_is_found(name: str) -> None:
    plant, kind, words = OF_CLIP[name]
    found = described("clip.page/0", plant)
    assert (found.kind, found.explains) == (kind, True), found.text
    assert words in found.text


def test_values_of_one_dtype_are_truncated_only_if_all_are_nearer_to_zero() -> None:
    exact = random(2, 40, 64)
    right, own = (one(exact).float() for one in (torch.Tensor.half, lambda x: truncated(x, torch.float16)))
    found = describe_tensor(RowPair(own, right))
    assert found is not None
    assert (found.kind, found.explains) == ("truncated", True), found.text
    turned = describe_tensor(RowPair(right, own))
    assert turned is not None
    assert turned.kind != "truncated"
    small = right.abs() < right.abs().quantile(0.05)
    mixed = describe_tensor(RowPair(torch.where(small, right * (1 + 2**-10), own).half().float(), right))
    assert mixed is not None
    assert mixed.kind != "truncated", "the smallest values go away from zero"


def test_factors_that_are_1_in_all_shown_digits_are_told_by_their_distance_from_it() -> None:
    found = described("clip.page/0", lambda x: x * (1 + 1e-4 * (random(x.shape[1], 1) % 1 + 0.1)))
    assert (found.kind, "1 but for up to" in found.text) == ("scaled-rows", True), found.text


def test_a_factor_that_is_1_in_all_shown_digits_is_not_said() -> None:
    assert "times 1" not in described("clip.page/0", lambda x: x * 1.00001).text


def test_rows_that_are_left_out_or_doubled_are_named() -> None:
    for change, words in (
        (lambda x: x[:, 1:], "64 positions instead of 65: without the expected position 0"),
        (lambda x: torch.cat([x[:, :1], x], 1), "66 positions instead of 65: the expected position 0 more than once"),
    ):
        found = described("clip.page/0", change)
        assert (found.kind, found.text) == ("left-out", words)
        assert found.explains
    assert not described("clip.page/0", lambda x: random(*x[:, 1:].shape)).explains


def test_the_update_of_a_block_is_told_from_its_output() -> None:
    pair = pair_of("prefill/2")
    given = pair.given
    assert given is not None
    for actual, words in (
        (given, "returns its input"),
        (pair.expected - given, "input is not added"),
        (given + 0.5 * (pair.expected - given), "adds 0.5 times its update"),
    ):
        found = describe_tensor(replace(pair, actual=actual))
        assert found is not None
        assert (found.kind, found.explains) == ("update", True)
        assert words in found.text


def test_the_tokens_that_differ_are_named_by_their_meaning() -> None:
    text = clean().inputs.images_seq_mask[0].logical_not()
    found = described("prefill/2", lambda x: x + random(*x.shape) * text[:, None])
    assert found.text.endswith("the text's tokens")
    found = described("prefill/2", lambda x: put(x, slice(-1, None), 0.0))
    assert "is zero" in found.text


def test_what_moved_among_the_image_alone_is_not_said_of_the_text() -> None:
    """The text's embeddings are small next to the image's features, so they hardly count in a norm."""
    right = block("prefill/0").given
    places = clean().inputs.images_seq_mask[0].nonzero().flatten()
    actual = right.clone()
    actual[:, places] = right[:, places.roll(1)]
    found = describe_tensor(RowPair(actual, right, "token"))
    assert found is not None
    assert (found.kind, found.explains) == ("shifted", True)
    first, last = int(places[0]), int(places[-1])
    assert found.text.startswith(f"token {first} holds the expected token {last}; tokens {first + 1} to {last} hold")
    assert found.text.endswith("all others are in place")


@pytest.mark.parametrize("item", ["view", "window"])
def test_views_are_told_apart(item: str) -> None:
    """The tensor has a page's view three times, changed each time."""
    right = block("clip.page/0").gave
    views = torch.cat([right, right.flip(1), right * 1.5])
    for actual, kind, words in (
        (views[[1, 0, 2]], "reordered", "expected {}s 2, 1, 3"),
        (torch.cat([views[:2], 2 * views[2:]]), "scaled", "only {} 3 of 3 differs; there every value"),
        (torch.cat([views[:2], views[2:] + random(*right.shape)]), "confined", "only {} 3 of 3 differs"),
        (torch.cat([views[:2], 0 * views[2:]]), "zero", "{} 3 of 3 is zero"),
    ):
        found = describe_tensor(RowPair(actual, views, item=item))
        assert found is not None
        assert (found.kind, found.explains) == (kind, True), found.text
        assert words.format(item) in found.text


OTHER: Mapping[str, Callable[[Tensor], Tensor]] = {
    "noise": lambda x: x + 0.1 * random(*x.shape),
    "activation": F.gelu,
    "grows": lambda x: x + random(*x.shape) * torch.arange(x.shape[1])[:, None] / x.shape[1],
    "six directions": lambda x: x + random(x.shape[1], 6) @ random(6, x.shape[2]),
    "square": lambda x: x + 0.1 * x * x,
    "blurred": lambda x: (x + x.roll(1, 1) + x.roll(-1, 1)) / 3,
    "a roll with noise": lambda x: x.roll(1, 1) + 0.7 * x.std() * random(*x.shape),
    "softmax": lambda x: x.softmax(-1),
}


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("name", OTHER)
def test_no_relation_is_named_for_another_mistake(name: str, what: str) -> None:
    """Only the place and the size of the difference are described."""
    found = described(what, OTHER[name])
    assert (found.kind, found.explains) == ("anatomy", False), found.text
    assert found.text.startswith("relative error ")
    assert ("grows with the position" in found.text) == (name == "grows")


@pytest.mark.parametrize("name", ["last first", "exchanged", "channel zero", "vector", "one direction"])
def test_a_relation_is_found_under_the_rounding_of_fewer_bits(name: str) -> None:
    """Both sides differ by half a percent besides."""
    plant, kind, _ = ANYWHERE[name]
    pair = pair_of("prefill/2", lambda right: plant(right) * (1 + 0.005 * random(*right.shape)))
    found = describe_tensor(replace(pair, noise=2e-2))
    assert found is not None
    assert (found.kind, found.explains) == (kind, True), found.text
    noise = replace(pair, actual=pair.expected * (1 + 0.05 * random(*pair.expected.shape)), noise=2e-2)
    found = describe_tensor(noise)
    assert found is not None
    assert not found.explains


def test_equal_tensors_have_no_description() -> None:
    assert describe_tensor(pair_of("clip.page/0")) is None


def test_values_that_are_not_finite_are_placed() -> None:
    found = described("clip.page/0", lambda x: put(x, slice(62, None), float("nan")))
    assert (found.kind, "at positions 62 to 64 of 65" in found.text) == ("not-finite", True)


def test_rows_of_the_page_before_are_found() -> None:
    pair = pair_of("prefill/2")
    earlier = pair.expected + random(*pair.expected.shape)
    stale = replace(pair, actual=torch.cat([earlier[:, :48], pair.expected[:, 48:]], 1))
    found = of_earlier(stale, torch.cat([earlier, earlier], 1), "the page")
    assert found is not None
    assert (found.explains, found.cases) == (True, 48)
    assert found.text == "tokens 0 to 47 are those of the page, which was read before"
    assert of_earlier(replace(pair, actual=pair.actual + 1), earlier, "the page") is None
    for where, words in ((earlier, "is token 1 of the page, which was read before"), (pair.expected, "holds the exp")):
        ends = replace(pair, actual=put(pair.expected.clone(), slice(3, None, 4), where[0, 1]))
        one = of_earlier(ends, earlier, "the page") if where is earlier else describe_tensor(ends)
        assert one is not None
        assert (one.explains, f"every 4th, from 3 on; each {words}" in one.text) == (True, True), one.text


def test_only_is_said_if_all_other_rows_are_equal() -> None:
    right = random(4, 32, 8)
    wrong = right.clone()
    wrong[2:] += random(2, 32, 8).flip(1)
    whole = describe_tensor(RowPair(wrong, right))
    wrong[0] *= 1 + 1e-3
    part = describe_tensor(RowPair(wrong, right))
    assert whole is not None
    assert part is not None
    assert whole.text.startswith("only views 3 to 4 of 4 differ")
    assert part.text.startswith("nearly all of the difference is in views 3 to 4 of 4")
    wrong[1] += random(32, 8)
    most = describe_tensor(RowPair(wrong, right))
    assert most is None or "views" not in most.text, "most of the views are no place"
