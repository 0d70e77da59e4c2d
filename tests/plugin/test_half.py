"""A run in float16 that cannot be judged: it stops with one statement, and does not pass."""

from pathlib import Path

import torch

from pytest_dsocr.report.file import read_result
from tests.engine.written import write_synthetic
from tests.plugin.conftest import TWO, Repository

PORT = """
    from pytest_dsocr.engine.engine import Engine
    from pytest_dsocr.subjects.engine import EngineSubject

    class Port(EngineSubject):
        def __init__(self, setup):
            super().__init__(Engine.from_checkpoint(setup.checkpoint, dtype=setup.dtype))
"""
ALONE = """
    def test_alone(dsocr_subject):
        assert False, "the run stops before"
"""
FACTORS = {"model.sam_model.blocks.1.mlp.lin2.weight": 3e5}


def test_a_run_stops_with_one_statement(repository: Repository, tmp_path: Path) -> None:
    write_synthetic("tiny", tmp_path / "weights", torch.float32, factors=FACTORS)
    repository.pytester.makepyfile(port=PORT)
    checkpoint = f"--dsocr-checkpoint={tmp_path / 'weights'}"
    options = ("--dsocr-subject=port:Port", "--dsocr-dtype=float16", "--dsocr-out=out", checkpoint)
    run = repository.run(ALONE + TWO, *options)
    found = read_result(Path("out"))
    assert run.ret != 0
    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines("*cannot be judged in float16*SAM's block 1 reaches *; float16 ends at 65504*")
    assert found["verdict"].startswith("no comparison was made")
