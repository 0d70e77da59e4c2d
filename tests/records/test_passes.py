"""Passes of a block, joined by their place: from shapes alone, in every usual order of calls."""

from collections.abc import Sequence

import pytest
import torch

from pytest_dsocr.contract import GRID
from pytest_dsocr.records.passes import ONE_SIZE, SURPLUS, CallShape, Pass, Passes, Place, placed, places_of
from pytest_dsocr.records.reference_result import Seam

CROPS, PAGE = Place("clip.crops/0", (4, 101, 8), 0, 4), Place("clip.page/0", (1, 257, 8), 0, 1)
ONE, WHOLE = (1, 101, 8), PAGE.shape
PROMPT = Place("prefill/0", (1, 278, 8), 1, 278)


def of(places: Sequence[Place], *shapes: CallShape) -> dict[str, Sequence[int] | str]:
    """Return the numbers of the calls that make up each tensor, or the reason that it has none."""
    runs = placed([Pass(shape, number) for number, shape in enumerate(shapes)], places)
    return {place.name: run if isinstance(run, str) else [one.out for one in run] for place, run in runs}


def chunks(*views: int) -> list[CallShape]:
    return [(number, 101, 8) for number in views]


@pytest.mark.parametrize(
    ("shapes", "crops", "page"),
    [
        ([(4, 101, 8), WHOLE], [0], [1]),
        ([WHOLE, (4, 101, 8)], [1], [0]),
        ([*chunks(2, 2), WHOLE], [0, 1], [2]),
        ([*chunks(3), WHOLE, *chunks(1)], [0, 2], [1]),
        ([*[ONE] * 4, WHOLE], [0, 1, 2, 3], [4]),
        ([(4, 101, 8), WHOLE, *chunks(3, 1), WHOLE], [2, 3], [4]),
        ([ONE, WHOLE, (4, 101, 8), WHOLE], [2], [3]),
        ([(2, 80, 8), (4, 101, 8), WHOLE], [1], [2]),
    ],
)
def test_calls_for_views_are_joined_and_the_last_run_counts(
    shapes: list[CallShape], crops: list[int], page: list[int]
) -> None:
    assert of([CROPS, PAGE], *shapes) == {CROPS.name: crops, PAGE.name: page}


def tokens(*lengths: int) -> list[CallShape]:
    return [(1, length, 8) for length in lengths]


@pytest.mark.parametrize(
    ("shapes", "calls"),
    [
        (tokens(278), [0]),
        (tokens(277, 1), [0, 1]),
        (tokens(1, 277), [0, 1]),
        (tokens(128, 128, 22), [0, 1, 2]),
        (tokens(256, 22, 256, 22), [2, 3]),
        (tokens(277, 1, 1, 1), [0, 1]),
        (tokens(1, 1, 278), [2]),
        ([*tokens(278), (2, 1, 8), *tokens(256, 22)], [2, 3]),
    ],
)
def test_chunks_of_a_prompt_are_joined_without_decode_steps(shapes: list[CallShape], calls: list[int]) -> None:
    assert of([PROMPT], *shapes) == {PROMPT.name: calls}


@pytest.mark.parametrize(
    ("place", "shapes"),
    [
        (CROPS, [(6, 101, 8)]),
        (CROPS, [*chunks(3, 3)]),
        (CROPS, [*chunks(4, 2)]),
        (CROPS, [(4, 128, 8)]),
        (CROPS, [(1, 4 * 101 + 257, 8)]),
        (CROPS, [(5, 257, 8)]),
        (PAGE, [(5, 257, 8)]),
        (PROMPT, tokens(320)),
        (PROMPT, tokens(1, 256, 21, 1)),
        (PROMPT, tokens(256, 64)),
        (PROMPT, [(4, 278, 8)]),
    ],
)
def test_padded_batches_and_calls_that_do_not_add_up_have_no_place(place: Place, shapes: list[CallShape]) -> None:
    assert of([place], *shapes) == {place.name: SURPLUS}


@pytest.mark.parametrize(
    ("place", "shapes", "calls"),
    [
        (CROPS, [(3, 101, 8)], [0]),
        (CROPS, [*chunks(2, 1)], [0, 1]),
        (CROPS, [(4, 100, 8)], [0]),
        (CROPS, [(4, 101, 16)], [0]),
        (CROPS, [(4, 8, 101)], [0]),
        (PAGE, [(1, 256, 8)], [0]),
        (PAGE, [(25, 196, 8)], [0]),
        (PROMPT, tokens(277), [0]),
        (PROMPT, tokens(200, 77), [0, 1]),
        (PROMPT, [(1, 278, 16)], [0]),
    ],
)
def test_shapes_that_only_a_wrong_port_gives_are_handed_on(
    place: Place, shapes: list[CallShape], calls: list[int]
) -> None:
    assert of([place], *shapes) == {place.name: calls}


def test_a_view_that_no_call_is_of_is_left_out() -> None:
    assert of([CROPS, PAGE], WHOLE) == {PAGE.name: [0]}
    assert of([CROPS, PAGE], *chunks(4)) == {CROPS.name: [0]}
    assert of([CROPS, PAGE]) == {}


def test_without_the_class_token_both_views_are_wrong() -> None:
    assert of([CROPS, PAGE], (4, 100, 8), (1, 256, 8)) == {CROPS.name: [0], PAGE.name: [1]}
    assert of([CROPS, PAGE], (4, 100, 8), WHOLE) == {CROPS.name: [0], PAGE.name: [1]}


@pytest.mark.parametrize(
    ("views", "crops", "page"),
    [
        ((4, 1), [0], [1]),
        ((1, 4), [1], [0]),
        ((4, 1, 4, 1), [2], [3]),
        ((5,), ONE_SIZE, ONE_SIZE),
        ((2, 2, 1), ONE_SIZE, ONE_SIZE),
        ((1, 1, 1, 1, 1), ONE_SIZE, ONE_SIZE),
    ],
)
def test_views_of_one_size_are_known_by_whole_calls_alone(
    views: Sequence[int], crops: list[int] | str, page: list[int] | str
) -> None:
    places = [CROPS, PAGE._replace(shape=ONE)]
    assert of(places, *chunks(*views)) == {CROPS.name: crops, PAGE.name: page}


def places(prompt: int = 5, images: int = 1) -> dict[str, Place]:
    shapes = {"clip.crops/0": (2, 3, 8), "clip.page/0": (1, 4, 8), "clip.page": (1, 3, 8), "prefill/1": (1, 5, 8)}
    seams = {name: Seam.of(torch.ones(shape)) for name, shape in shapes.items()}
    inputs = {"input_ids": torch.ones(1, prompt), GRID: torch.tensor([[2, 1]] * images)}
    return {place.name: place for own in (places_of(seams, inputs) or {}).values() for place in own}


def test_places_are_those_of_the_references_blocks_and_of_the_subjects_inputs() -> None:
    found = places(prompt=6)
    assert [*found] == ["clip.crops/0", "clip.page/0", "prefill/1"]
    assert {name: (one.axis, one.run) for name, one in found.items()} == {
        "clip.crops/0": (0, 2),
        "clip.page/0": (0, 1),
        "prefill/1": (1, 6),
    }
    assert not found["prefill/1"].is_whole, "the subject's prompt is longer than the reference's"
    assert places_of({"clip.page": Seam.of(torch.ones(2))}, {GRID: torch.ones(1, 2)}) is None


def test_of_several_images_the_first_ones_views_are_compared() -> None:
    page = places(images=3)["clip.page/0"]
    assert of([page], *[(1, 4, 8)] * 6) == {page.name: [3, 4, 5]}
    assert of([page], (3, 4, 8)) == {page.name: [0]}
    views = torch.arange(3.0)[:, None, None].expand(3, 4, 8)
    assert page.joined(views.split(1)).tolist() == page.joined([views]).tolist() == views[:1].tolist()


def test_calls_that_an_error_cut_short_are_left_out() -> None:
    calls = {0: [*chunks(2, 2), WHOLE, *chunks(2, 2)], 1: [*chunks(2, 2), WHOLE, *chunks(2)], 2: [*chunks(2, 2), WHOLE]}
    passes = Passes[int]({("clip", depth): [CROPS, PAGE] for depth in calls})
    for depth, shapes in calls.items():
        for number, shape in enumerate(shapes):
            passes.keep(("clip", depth), Pass(shape, number))
    passes.are_cut_short = True
    kept = [(block[1], place.name) for block, place, _ in passes.joined()]
    assert kept == [(0, CROPS.name)], "the second run did not come to anything else"
