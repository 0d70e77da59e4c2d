"""What is handed around cannot be changed by whoever gets it: every dataclass is frozen, but for those listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest_dsocr

PACKAGE = Path(pytest_dsocr.__file__).parent
FILLED_AS_WORK_GOES_ON = {
    "adapters/mlx_vlm.py: MlxState",
    "engine/pipeline.py: DecodeState",
    "reference/vendor_code/observe.py: VendorRun",
    "perf/probe/counting.py: Operators",
    "perf/probe/walk.py: Walk",
    "night/state.py: Entry",
    "night/state.py: NightState",
    "report/collection.py: Plan",
    "report/collection.py: Collected",
    "report/outcomes.py: TestResult",
}


def test_every_dataclass_is_frozen() -> None:
    is_frozen = dict(dataclasses())
    assert len(is_frozen) > 50
    assert {name for name, frozen in is_frozen.items() if not frozen} == FILLED_AS_WORK_GOES_ON


def dataclasses() -> Iterator[tuple[str, bool]]:
    """Each dataclass of the package, and whether it is frozen."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
            for words in (ast.unparse(decorator) for decorator in decorators):
                if isinstance(node, ast.ClassDef) and words.startswith("dataclass"):
                    yield f"{path.relative_to(PACKAGE).as_posix()}: {node.name}", "frozen=True" in words
