from __future__ import annotations

import re

import numpy as np
import pytest

from pytest_dsocr.contract.geometry import Geometry, draw_geometry, is_geometry, read_geometry
from pytest_dsocr.contract.mmd import to_mmd
from pytest_dsocr.foundation.errors import DsocrError
from suites.meta.contract.recorded_outputs import Recorded, each_recorded_output
from suites.meta.vendor_live.outputs import GEOMETRY


def figure(lines: object = (), types: object = (), endpoints: object = ()) -> str:
    return repr({"Line": {"line": lines, "line_type": types, "line_endpoint": endpoints}})


@each_recorded_output
def test_a_figure_is_drawn_wherever_the_vendor_draws_one(recorded: Recorded) -> None:
    mmd = to_mmd(recorded.text)
    if "geo.jpg" in recorded.files:
        assert draw_geometry(read_geometry(mmd)).size == (600, 600)
    elif not is_geometry(mmd):
        assert recorded.error is None
    else:  # the vendor raised
        assert recorded.error in ("SyntaxError", "KeyError", "IndexError")


def test_lines_and_points_are_read() -> None:
    a, b, c = (-8.0, -5.0), (8.0, -5.0), (0.0, 9.0)
    assert read_geometry(GEOMETRY) == Geometry(
        lines=((a, b), (b, c), (c, a)), points=(("A", a), ("B", b), ("C", c)), problems=()
    )


@pytest.mark.parametrize(
    ("mmd", "lines", "points", "problems"),
    [
        (figure(["(0, 0) -- (1, 1)", "from A to B"], ["-", "-"]), 1, 0, ["'from A to B' cannot be read"]),
        (figure(["(0, 0) -- (1, 1)", "(2, 2) -- (3, 3)"], ["-"]), 1, 0, [r"'\(2, 2\).* has no type"]),
        (figure(["(0, 0) -- (1, 1)"], ["-", "--"]), 1, 0, []),
        (figure(["(0, 0)"], ["-"]), 1, 0, []),
        (figure([(0, 0)], ["-"]), 0, 0, ["it is no string"]),
        (figure(["(0, 0) -- (1, 1, 1)"], ["-"]), 0, 0, ["is no point"]),
        (figure(["(0, 0) -- (1, '1')"], ["-"]), 0, 0, ["is no point"]),
        (figure(["(0, 0) -- (1, 1e9)"], ["-"]), 0, 0, ["is no point"]),
        (figure(["(0, 0) -- (1, 1e999)"], ["-"]), 0, 0, ["is no point"]),
        (figure(["(0, 0) -- (1, sqrt(3))"], ["-"]), 0, 0, ["cannot be read"]),
        (figure([], [], ["A: (1, 2)", "B at (1, 2)", "C: 3"]), 0, 1, ["'name: ", "is no point"]),
        (figure(), 0, 0, []),
    ],
)
def test_a_bad_entry_is_reported_and_the_rest_is_read(mmd: str, lines: int, points: int, problems: list[str]) -> None:
    geometry = read_geometry(mmd)
    assert (len(geometry.lines), len(geometry.points), len(geometry.problems)) == (lines, points, len(problems))
    assert all(re.search(wanted, found) for wanted, found in zip(problems, geometry.problems, strict=True))


@pytest.mark.parametrize(
    "mmd",
    [
        "The field line_type says how a line is drawn.",
        GEOMETRY[:-20],
        "{'line_type': []}",
        "{'Line': 'line_type'}",
        figure(lines="(0, 0) -- (1, 1)"),
        figure(types=7),
        figure(endpoints=None),
        "['line_type']",
        "line_type" * 100_000,
        "__import__('os').system('touch line_type')",
    ],
)
def test_what_is_no_figure_is_refused(mmd: str) -> None:
    assert is_geometry(mmd)
    with pytest.raises(DsocrError, match="no geometry figure"):
        read_geometry(mmd)


def test_lines_and_dots_stand_where_the_vendors_do() -> None:
    image = draw_geometry(read_geometry(figure(["(-10, 5) -- (10, 5)"], ["-"])))
    dark = np.asarray(image.convert("L")) < 128
    # The vendor's axes span 75..540 px across and 72..534 px down, so (-10, 5) is at (152.5, 226).
    assert dark[226, 153:462].all()
    assert not dark[226, 80:147].any()
    assert dark[222:231, 153].all()
    assert not dark[213:219, 153].any()
    assert dark[73:533, 75].all()
    assert dark[534, 80:539].all()


def test_what_lies_beyond_the_axes_is_cut_off() -> None:
    empty = np.asarray(draw_geometry(read_geometry(figure())))
    beyond = figure(["(-999999, 16) -- (999999, 16)", "(16, -16) -- (16.5, 16)"], ["-", "-"], ["A: (15.5, 0)"])
    assert np.array_equal(np.asarray(draw_geometry(read_geometry(beyond))), empty)


def test_a_point_is_named_beside_it() -> None:
    empty = np.asarray(draw_geometry(read_geometry(figure())).convert("L")).astype(int)
    named = np.asarray(draw_geometry(read_geometry(figure(endpoints=["A: (0, 0)"]))).convert("L")).astype(int)
    rows, columns = np.nonzero(np.abs(named - empty) > 60)
    assert 285 <= rows.min() <= rows.max() <= 303
    assert 307 <= columns.min() <= columns.max() <= 325
