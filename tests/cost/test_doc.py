"""The figures in ``docs/cost.md`` are what is computed."""

from __future__ import annotations

from pytest_dsocr.cost.cost import as_counted
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.families import DEFAULT
from tests.markdown import blocks, table, text_of

DOC = "docs/cost.md"
FULL = Architecture()
PAGE = Workload((1400, 1400), DEFAULT.presets["gundam"], text_tokens=10, generated_tokens=65)
WAYS = (("eager", "cpu"), ("sdpa", "cpu"), ("flash_attention_2", "cuda"))


def giga(flops: float) -> str:
    return f"{flops / 1e9:,.1f}"


def test_stages() -> None:
    rows = [
        [
            f"`{name}`",
            giga(stage.cost.matrix_flops),
            *(giga(as_counted(stage, *way)) for way in WAYS),
            f"{stage.cost.bytes / 1e9:.2f}",
        ]
        for name, stage in stages_of(FULL, PAGE).items()
    ]
    assert table(DOC, "stage") == rows
    assert f"a prompt of {PAGE.prompt_tokens} tokens" in text_of(DOC)


def test_the_example_runs() -> None:
    [block] = blocks(DOC, "python")
    reported: list[tuple[object, ...]] = []
    exec(compile(block, DOC, "exec"), {"print": lambda *words: reported.append(words)})
    assert reported == [(name, one.cost.matrix_flops, one.cost.bytes) for name, one in stages_of(FULL, PAGE).items()]
