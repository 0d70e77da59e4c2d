"""Snapshots: limits of their comparison, keys, updates and refusals."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import syrupy
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.base.files import seal, unseal
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.plugin.snapshots import differences
from tests.plugin.conftest import Repository

HOME = Path("golden/snapshots/mini/cpu-float32-eager/checks/test_it")
KEPT: dict[str, Any] = {
    "boxes": 2,
    "characters": 100,
    "grid": [[2, 3]],
    "spans": [["title", [[10, 10, 500, 40]]], ["text", [[10, 60, 990, 200]]]],
}
CONFTEST = """
    import json
    from pathlib import Path
    import pytest
    import standin

    @pytest.fixture
    def values():
        return json.loads(Path("values.json").read_text())
"""
TESTS = """
    import pytest
    from pytest_dsocr.plugin.snapshots import compare_snapshot

    @pytest.mark.parametrize("case", ["a-gundam", "b-gundam"])
    def test_reading(case, dsocr_snapshot, values, dsocr_check):
        dsocr_check([compare_snapshot("reading", dsocr_snapshot, values[case])])

    @pytest.mark.parametrize("size", ["640"])
    class TestIt:
        def test_grid(self, size, dsocr_snapshot, values):
            assert dsocr_snapshot == values["grid"]
            assert dsocr_snapshot == [values["grid"], "again"]
"""
MINI_SHA256 = resolve("mini").sha256
Run = Callable[..., pytest.RunResult]


MOVED = {"spans": [["title", [[10, 10, 500, 49]]], KEPT["spans"][1]]}
RELABELLED = {"spans": [["note", KEPT["spans"][0][1]], KEPT["spans"][1]]}


@pytest.mark.parametrize(
    ("changed", "allowed", "not_allowed"),
    [
        ({"grid": [[3, 2]]}, None, {}),
        ({"characters": 101}, {"text": 0.01}, {}),
        ({"boxes": 3}, {"boxes": 1}, {}),
        ({"more": 1}, None, {}),
        (MOVED, {"coords": 0.01}, {"coords": 0.005}),
        ({"spans": KEPT["spans"][:1]}, {"boxes": 1}, {}),
        (RELABELLED, None, {"coords": 1.0, "boxes": 9}),
    ],
)
def test_values_are_compared_within_limits(
    changed: dict[str, Any],
    allowed: dict[str, float] | None,
    not_allowed: dict[str, float] | None,
    snapshot: SnapshotAssertion,
) -> None:
    for limits in (allowed, not_allowed):
        if limits is not None:
            found = list(differences({**KEPT, **changed}, KEPT, tolerances("float32").but(limits)))
            assert bool(found) == (limits is not_allowed)
            assert found == snapshot


@pytest.fixture
def run(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the tests above on given values against snapshots of ``KEPT``."""
    monkeypatch.setattr(syrupy, "_syrupy", syrupy._syrupy)  # a run in here puts its own engine there
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)  # of the run around it: a worker leaves reports to its controller
    pytester = repository.pytester
    tests = pytester.mkpydir("checks")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS).rename(tests / "test_it.py")
    tests.joinpath("test_other.py").write_text("def test_other(): pass")

    def run(*arguments: str, **changed: Any) -> pytest.RunResult:
        values = {"a-gundam": KEPT, "b-gundam": KEPT, "grid": [2, 3]} | changed
        Path("values.json").write_text(json.dumps({name.replace("_", "-"): value for name, value in values.items()}))
        own = () if "--dsocr-golden" in arguments else ("--dsocr-golden", "golden")
        options = ("-p", "no:cacheprovider", "--snapshot-details", "checks", *own)
        start = pytester.runpytest_subprocess if "-n" in arguments else pytester.runpytest_inprocess
        return start(*options, *arguments)

    return run


@pytest.fixture
def accepted(run: Run) -> Run:
    """Return ``run`` after the snapshots have been accepted."""
    run("--snapshot-update").assert_outcomes(passed=4)
    return run


@pytest.mark.dsocr_slow
def test_snapshots_are_made_by_key_and_held_from_then_on(accepted: Run) -> None:
    names = {path.name for path in HOME.iterdir()}
    readings = {"test_reading[a-gundam].json", "test_reading[b-gundam].json"}
    assert names == {*readings, "TestIt.test_grid[640].json", "TestIt.test_grid[640].1.json"}
    kept = unseal((HOME / "test_reading[a-gundam].json").read_bytes())
    assert kept["value"] == KEPT
    assert kept["origin"].keys() >= {"subject", "checkpoint_sha256", "device", "dtype", "versions", "date", "command"}
    accepted().assert_outcomes(passed=4)
    result = accepted(b_gundam={**KEPT, "grid": [[9, 9]]})
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        ["*grid: [[][[]9, 9]]; the snapshot has [[][[]2, 3]]*", "*accept it: --snapshot-update*"]
    )


@pytest.mark.dsocr_slow
def test_those_shipped_of_another_subject_fail_no_port_that_differs(accepted: Run) -> None:
    """Skip a shipped snapshot of another subject if it differs, as the reference judges this subject."""
    differs = {**KEPT, "grid": [[9, 9]]}
    port = ("--dsocr-subject=standin:Misreader", "-rs", "-k", "reading")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_dsocr.plugin.snapshots.shipped_folder", lambda: Path("golden"))
        result = accepted(*port, b_gundam=differs)
        result.assert_outcomes(passed=1, skipped=1, deselected=2)
        message = "there is none of standin:Misreader; that of standin:Reader, which is shipped, differs: grid"
        assert message in result.stdout.str()
        result.stdout.no_fnmatch_line("*snapshot* failed*")
        accepted(*port, "--dsocr-no-skip", b_gundam=differs).assert_outcomes(passed=1, failed=1, deselected=2)
        accepted("-k", "reading", b_gundam=differs).assert_outcomes(passed=1, failed=1, deselected=2)
    accepted(*port, b_gundam=differs).assert_outcomes(passed=1, failed=1, deselected=2)


def test_an_update_writes_what_is_beyond_the_limits(accepted: Run) -> None:
    moved = {**KEPT, "spans": [["title", [[10, 10, 500, 49]]], *KEPT["spans"][1:]]}
    before = {path.name: path.read_bytes() for path in HOME.iterdir()}
    accepted("--snapshot-update", "--dsocr-tolerances", "coords=0.01", a_gundam=moved, grid=[9])
    after = {path.name: path.read_bytes() for path in HOME.iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"TestIt.test_grid[640].json", "TestIt.test_grid[640].1.json"}
    assert before.keys() == after.keys()


@pytest.mark.dsocr_slow
def test_a_missing_one_is_message_with_the_nearest_keys(accepted: Run) -> None:
    """Fail in ``assert``, and skip in ``compare_snapshot`` unless skips are failures."""
    other = ("--dsocr-dtype", "bfloat16")
    shutil.copytree(HOME, "golden/snapshots/large/nvidia-h200-float32-sdpa/checks/test_it")
    accepted(*other, "-k", "reading", "-rs").assert_outcomes(skipped=2)
    accepted(*other, "-k", "grid").assert_outcomes(failed=1)
    result = accepted(*other, "-k", "reading", "--dsocr-no-skip")
    result.assert_outcomes(failed=2)
    key = f"mini/cpu-bfloat16-eager (checkpoint {MINI_SHA256[:12]})"
    message = f"there is no snapshot of {key}, but "  # of all in the same words, so that they are one line
    near = "mini/cpu-float32-eager (dtype float32)"
    far = "large/nvidia-h200-float32-sdpa (checkpoint large, device nvidia-h200, dtype float32, attention sdpa)"
    assert f"{message}{near}; {far}; make it with --snapshot-update" in result.stdout.str()
    result = accepted(*other, "--dsocr-allow-missing", "snapshot", "-rs")
    result.assert_outcomes(skipped=3, passed=1)
    assert "snapshot report" not in result.stdout.str()
    for path in Path("golden/snapshots").rglob("test_reading[[]a-gundam].json"):
        path.unlink()
    message = "*for test_reading[[]a-gundam], nor any other; make it*"
    accepted("-k", "a-gundam", "--dsocr-no-skip").stdout.fnmatch_lines([message])


@pytest.mark.dsocr_slow
def test_damage_and_other_weights_are_message(accepted: Run) -> None:
    a, b = (HOME / f"test_reading[{case}-gundam].json" for case in "ab")
    a.write_bytes(a.read_bytes().replace(b'"boxes": 2', b'"boxes": 3'))
    content = {name: value for name, value in unseal(b.read_bytes()).items() if name != "sha256"}
    b.write_bytes(seal(content | {"origin": content["origin"] | {"checkpoint_sha256": "f" * 64}}))
    result = accepted("-k", "reading")
    result.assert_outcomes(failed=2)
    other = "*weights of SHA-256 ffffffffffff, and those under test have*"
    for message in ("*the snapshot is damaged: its content*", other):
        result.stdout.fnmatch_lines([message])
    accepted("--snapshot-update").assert_outcomes(passed=4)
    accepted().assert_outcomes(passed=4)


@pytest.mark.dsocr_slow
def test_one_whose_test_is_gone_is_unused(accepted: Run) -> None:
    """Delete unused snapshots, also on workers, but keep those of other cases."""
    kept = HOME / "test_reading[a-gundam].json"
    names = ("test_gone[a-gundam].json", "TestIt.test_gone.json", "test_reading[c-gundam].json")
    *gone, of_another_case = (kept.with_name(name) for name in names)
    for path in (*gone, of_another_case):
        shutil.copy(kept, path)
    assert accepted("-k", "b-gundam").ret == 0
    result = accepted()
    result.stdout.fnmatch_lines(["4 snapshots passed. 2 snapshots unused."])
    assert result.ret == 1
    result = accepted("--snapshot-update", "-n", "2", grid=[9])
    result.stdout.fnmatch_lines(["2 snapshots passed. 2 snapshots updated. 2 unused snapshots deleted."])
    assert of_another_case.exists()
    assert not any(path.exists() for path in gone)
