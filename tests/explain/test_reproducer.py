"""Scripts that show a difference without this package: they fail with the port's values and pass with right ones."""

import ast
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.explain.computed import Seen
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.reproducer import DATA, MOST_BYTES, SCRIPT, write, write_seen
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import InputsDigest, Seam, pixels_sha256, runs
from pytest_dsocr.run.reproducers import reproduce
from tests.describe import real
from tests.processes import finished
from tests.report import made

MOST_LINES = 60
ALLOWED = {*sys.stdlib_module_names, "torch", "numpy", "PIL"}
PORTS_LINE = 'return DATA["actual"]'


class Reproduced(NamedTuple):
    """A script, and what a right port returns for its input."""

    folder: Path
    right: Any
    rule: str
    """Words of the script if it has the vendor's rule."""


def of_tensor(what: str, spoil: Callable[[torch.Tensor], torch.Tensor], rule: str, out: Path) -> Reproduced:
    """Write the script of a block or stage of the embedded model that gives a spoilt tensor."""
    clean, name = real.clean(), TensorName.parse(what)
    given: tuple[torch.Tensor, ...]
    if name.block is not None:
        right, given = real.block(what).gave, (real.block(what).given,)
    elif name.view:
        right, given = clean.features(name.stage, name.view), tuple(clean.stage_inputs(name.stage, name.view))
    else:
        right, given = clean.fused, clean.to_fuse
    case = make_case(real.PAGE, "free", "tiny", family=DEEPSEEK_OCR)
    write_seen(out, clean, case, Seen(what, spoil(right), given), Seam.of(right))
    [script] = out.rglob(SCRIPT)
    data = np.load(script.with_name(DATA))
    return Reproduced(script.parent, data["expected"], rule)


@cache
def cut() -> Clean:
    """Return the right tensors of a page with crops."""
    return Clean(real.engine(), real.engine().prepare(real.CUT, prompt="free", preset="gundam"))


def of_pixels(out: Path) -> Reproduced:
    """Write the script of crops that differ by one level in some places, as another resizing's do."""
    case = make_case(real.CUT, "free", "gundam", family=DEEPSEEK_OCR)
    clean = cut()
    right = clean.inputs.images_crop
    spoilt = right.clone()
    spoilt[0, 0, 9, ::7] = (right[0, 0, 9, ::7].float() - 2 / 255).bfloat16()
    write_seen(out, clean, case, Seen("images_crop", spoilt), pixels_sha256(right))
    [script] = out.rglob(SCRIPT)
    view = int((spoilt.float() - right.float()).flatten(1).norm(dim=1).argmax())
    return Reproduced(script.parent, right[view].float().numpy(), "resize(")


def of_ids(out: Path) -> Reproduced:
    """Write the script of a prompt without its first token."""
    inputs = cut().inputs.tensors
    expected = InputsDigest.of(inputs)
    own = replace(expected, input_ids=runs(inputs["input_ids"][:, 1:]))
    reproduce(_report(out, expected, own), out)
    return Reproduced(out / "reproducers" / "tokenizer", inputs["input_ids"][0].numpy(), "layout")


def _report(out: Path, expected: InputsDigest, own: InputsDigest) -> CaseReport:
    found = made.exchange(out)
    case = make_case(real.CUT, "free", "gundam", family=DEEPSEEK_OCR)
    answer, reference = replace(found.answer, inputs=own), replace(found.expected, inputs=expected)
    return judge(replace(found, case=case, answer=answer, expected=reference), tolerances("float32"))


MADE: dict[str, Callable[[Path], Reproduced]] = {
    "pixels": of_pixels,
    "ids": of_ids,
    "window": partial(of_tensor, "sam.page/1", lambda right: right * 1.01, "positions_0"),
    "block": partial(of_tensor, "clip.page/1", lambda right: right.roll(1, dims=1), "softmax"),
    "linear": partial(of_tensor, "projector.page", lambda right: right + 0.1, 'data["bias"]'),
    "small": partial(of_tensor, "projector.page", lambda right: right * 1.00005, 'data["bias"]'),
    "fusion": partial(of_tensor, "vision_fusion", lambda right: right.flip(0), "separator"),
    "decoder": partial(of_tensor, "prefill/1", lambda right: right * right.gt(0), 'data["expected"]'),
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reproduced]:
    """Return a script of each kind."""
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in MADE.items()}


@pytest.mark.parametrize("name", MADE)
def test_a_script_fails_before_the_fix_and_passes_after_it(name: str, scripts: dict[str, Reproduced]) -> None:
    folder, right, rule = scripts[name]
    script, data = folder / SCRIPT, folder / DATA
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert data.stat().st_size <= MOST_BYTES
    assert rule in text
    names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {_top(node) for node in names} <= ALLOWED
    assert _status(script) == 1
    np.save(folder / "right.npy", right)
    fixed = script.with_name("fixed.py")
    fixed.write_text(text.replace(PORTS_LINE, f"return np.load({str(folder / 'right.npy')!r})"), encoding="utf-8")
    assert _status(fixed) == 0


def _top(node: ast.Import | ast.ImportFrom) -> str:
    name = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
    return name.partition(".")[0]


def _status(script: Path) -> Any:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    return ended.value.code


def test_a_script_needs_nothing_of_this_package(scripts: dict[str, Reproduced], tmp_path: Path) -> None:
    """Run it without the environment, in another folder, where this package cannot be imported."""
    script = str(scripts["ids"].folder / SCRIPT)
    run = (
        "import runpy, sys; sys.modules['pytest_dsocr'] = None",  # an import of it raises an error
        f"sys.path.append({str(Path(torch.__file__).parents[1])!r}); runpy.run_path({script!r}, run_name='__main__')",
    )
    done = finished(sys.executable, "-I", "-c", "; ".join(run), cwd=tmp_path, env={})
    assert done.returncode == 1, done.stderr
    assert "first at [0]" in done.stdout


def test_a_script_fails_for_an_error_just_above_the_limit_of_a_stage(tmp_path: Path) -> None:
    made = of_tensor("projector.page", lambda right: right * 1.00003, 'data["bias"]', tmp_path)
    assert _status(made.folder / SCRIPT) == 1


def test_a_rule_that_does_not_give_the_expected_values_is_left_out(
    scripts: dict[str, Reproduced], tmp_path: Path
) -> None:
    data = dict(np.load(scripts["linear"].folder / DATA))
    write(tmp_path / "right", "projector.page", "a page", data, "linear")
    write(tmp_path / "other", "projector.page", "a page", {**data, "expected": data["expected"] * 1.001}, "linear")
    [right], [other] = ([*(tmp_path / name).rglob(SCRIPT)] for name in ("right", "other"))
    assert ('data["bias"]' in right.read_text("utf-8"), 'data["bias"]' in other.read_text("utf-8")) == (True, False)
