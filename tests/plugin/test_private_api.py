"""What is used of pytest, pytest-xdist and syrupy without a promise of theirs: still there, and taking the same.

Where one of these fails, look up in the release notes what took its place, and change the module that is named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from xdist.scheduler import LoadScheduling, LoadScopeScheduling

TAKEN: dict[Callable[..., Any], str] = {
    LoadScheduling.__init__: "self config log",  # plugin.workers
    LoadScheduling.add_node: "self node",
    LoadScheduling.add_node_collection: "self node collection",
    LoadScopeScheduling.__init__: "self config log",  # plugin.case_scheduling
    LoadScopeScheduling.remove_node: "self node",
    LoadScopeScheduling._split_scope: "self nodeid",
    LoadScopeScheduling._reschedule: "self node",
    LoadScopeScheduling._assign_work_unit: "self node",
    LoadScopeScheduling._pending_of: "self workload",
    SingleFileSnapshotExtension.serialize: "self data",  # plugin.snapshots, to the end
    SingleFileSnapshotExtension.matches: "self serialized_data snapshot_data",
    SingleFileSnapshotExtension.diff_lines: "self serialized_data snapshot_data",
    SingleFileSnapshotExtension.dirname: "test_location",
    SingleFileSnapshotExtension.get_location: "test_location index",
    SingleFileSnapshotExtension.matches_test_location: "test_location snapshot_location",
    SingleFileSnapshotExtension.owns_snapshot_collection: "self filepath test_location",
    SnapshotAssertion.use_extension: "self extension_class",
    SnapshotAssertion.get_assert_diff: "self",
}


@pytest.mark.parametrize("function", TAKEN, ids=lambda function: function.__qualname__)
def test_it_takes_what_it_is_given(function: Callable[..., Any]) -> None:
    given = TAKEN[function].split()
    assert [*inspect.signature(function).parameters][: len(given)] == given


def test_a_snapshot_tells_what_it_was_compared_with(snapshot: SnapshotAssertion) -> None:
    assert (snapshot.executions, snapshot.num_executions) == ({}, 0)
    assert snapshot.test_location.item.name == "test_a_snapshot_tells_what_it_was_compared_with"
    assert snapshot.test_location.filepath == __file__


@pytest.mark.parametrize("name", ["assigned_work", "workqueue", "nodes"])
def test_a_scheduler_has_what_is_read_of_it(pytester: pytest.Pytester, name: str) -> None:
    """Read by ``plugin.case_scheduling``."""
    config = pytester.parseconfigure("-n", "2")
    config.hook.pytest_cmdline_main(config=config)
    assert not getattr(LoadScopeScheduling(config, None), name), "nothing is assigned yet"


def test_a_test_knows_its_fixtures_definitions(pytester: pytest.Pytester) -> None:
    """Read by ``plugin.hooks``."""
    pytester.makeconftest(
        "def pytest_generate_tests(metafunc):\n"
        "    [definition] = metafunc._arg2fixturedefs['tmp_path']\n"
        "    print(definition.argname, definition.func.__module__, 'tmp_path_factory' in definition.argnames)"
    )
    pytester.makepyfile("def test_it(tmp_path): pass")
    assert "tmp_path _pytest.tmpdir True" in pytester.runpytest_inprocess("-s").outlines
