"""Samples of failing runs in the README and in ``docs/adapters.md``: a run prints their lines, in their order."""

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.engine.engine import Engine
from tests.markdown import blocks, text_of
from tests.processes import finished


def check_sample(page: str, start: str, folder: Path, *arguments: str) -> None:
    """Run ``dsocr compare``, and find the lines of a page's sample in its output.

    A sample has ``...`` for lines, or for the rest of a line, that it leaves out. Its rounding errors depend on the
    machine.
    """
    [sample] = [block for block in blocks(page, "") if block.lstrip("_ ").startswith(start)]
    command = (sys.executable, "-P", "-m", "pytest_dsocr", "compare", *arguments)
    done = finished(*command, cwd=folder, env={**os.environ, "COLUMNS": "80", "DSOCR_EXPLAIN": "600"})
    sample, output = (re.sub(r"\de-\d+ apart", "apart", text) for text in (sample, done.stdout))
    printed = iter(output.splitlines())
    for line in (one.removesuffix("...") for one in sample.splitlines() if one.strip() != "..."):
        assert any(one.startswith(line) for one in printed), f"{line}\n\n{done.stdout}{done.stderr}"


@pytest.mark.dsocr_slow
def test_the_failing_run_of_the_readme_is_what_its_command_prints(tmp_path: Path) -> None:
    [command] = re.findall(r"^    dsocr compare (--subject=tests\.\S+)$", text_of("README.md"), re.MULTILINE)
    check_sample("README.md", "test_text[", tmp_path, *shlex.split(command), "--", "-k", "test_text")


@pytest.mark.dsocr_slow
def test_a_port_of_the_projector_alone_gets_the_answer_of_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compute the projector as the page says, from the reference's seams, with the halves in the wrong order."""
    monkeypatch.chdir(tmp_path)
    assert main(["dump", "slide_1011", "--out=reference"]) == 0
    layer = Engine.from_checkpoint("mini").model.get_submodule("model.projector.layers")
    weight, bias = (parameter.detach().numpy() for parameter in layer.parameters())
    [seams] = Path("reference").iterdir()
    own = Path("dumps", seams.name)
    own.mkdir(parents=True)
    for part in ("page", "crops"):
        sam, clip = (np.load(seams / f"{encoder}.{part}.npy") for encoder in ("sam", "clip"))
        rows = np.concatenate([sam.reshape(*sam.shape[:2], -1).swapaxes(1, 2), clip[:, 1:]], axis=-1)
        np.save(own / f"projector.{part}.npy", rows @ weight.T + bias)
    check_sample("docs/adapters.md", "WRONG ", tmp_path, "slide_1011", "--subject=dump:dumps", "--", "-k", "projector")
