"""Use the sketch where it is installed: write a checkpoint, read a page, time it, cost it, record it and compare it."""

import sys
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest
import torch

from pytest_dsocr.cli.compare import plugin
from pytest_dsocr.cost.model import parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.places import architecture_of, family_named
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.recording import Recording
from pytest_dsocr.report.words import suites
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.timing.rounds import QUANTITIES


class Causal(EngineSubject):
    """An implementation whose tower attends causally: not the engine, which is not compared with itself."""


def subject(setup: Setup) -> Causal:
    """Load one as a run does."""
    model = import_module("pytest_dsocr.models.sketch_ocr.model")

    engine = Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)
    own = mock.patch.object(model, "visible", lambda count: torch.ones(2 * count, 2 * count).tril().bool())
    vision = engine.pipeline.vision
    engine.pipeline.vision = own(vision)  # type: ignore[method-assign]
    return Causal(engine)


def main(folder: Path, page: Path) -> None:
    """Do all but the comparison."""
    sketch = MODELS["sketch_ocr"]
    arch = architecture_of("sketch_ocr:synthetic:sketch")
    model = model_class(arch)(arch)
    fill(model)
    write_checkpoint(folder, arch, model.state_dict(), byte_level_vocabulary(arch.decoder.vocab_size))
    assert architecture_of(folder) == arch
    engine = Engine.from_checkpoint(str(folder), instrument="timed")
    result = engine.run(page, preset="large", max_new_tokens=3)
    inputs = engine.prepare(page, preset="large")
    [vision] = engine.pipeline.vision(inputs)
    case = make_case(page, "markdown", "large", family=family_named(folder))
    assert (case.id, case.to_json()["family"]) == ("wide-large-markdown", "sketch_ocr")
    assert Case.from_json(page, case.to_json()) == case
    work = Workload((960, 480), case.preset, 10, 3, dtype="float32")
    assert (type(engine.model).__name__, inputs.images_spatial_crop.tolist()) == ("SketchOCR", [[2, 1]])
    assert inputs.images_crop.shape == (2, 3, 768, 768)
    assert result.counts.image_tokens == work.image_tokens == 256 + 1 + 2 * 144
    assert list(result.stage_times)[3:5] == ["queries", "projector"]
    seams = [f"{stage.name}.{view}" for stage in sketch.of_views for view in ("crops", "page")]
    assert list(vision.seams) == [*seams, "vision_fusion"]
    assert vision.crops is not None
    assert vision.crops["queries"].shape == (2, 144, 48)
    assert stages_of(arch, work)["projector"].cost.matrix_flops == 2 * (256 + 2 * 144) * 48 * 64
    assert sum(parameters(arch).values()) == sum(one.numel() for one in model.parameters())
    assert "queries" in QUANTITIES


def record(folder: Path, page: Path, golden: Path) -> None:
    """Record what the sketch makes of the page, and read it back."""
    made = EngineRuntime.load(str(folder))
    case = make_case(page, "markdown", "large", max_new_tokens=3, family=family_named(folder))
    seen = made.observe(case)
    with recorder(golden, made.provenance) as target:
        target.add(case, seen)
        published = target.publish()
    recorded = Recording.open(published.folder).cases[case.id].observation
    assert (recorded.steps, recorded.output, recorded.seams.keys()) == (seen.steps, seen.output, seen.seams.keys())
    assert {"queries.crops", "queries.page"} <= recorded.seams.keys()


def compare(folder: Path, page: Path, out: Path) -> int:
    """Run the tests of parity on the page; returns pytest's exit status."""
    of_subject = ("subject=use_sketch:subject", f"checkpoint={folder}", "reference=engine", f"out={out}")
    of_page = (f"pages={page}", "presets=large", "max-new-tokens=3", "explain=60")
    options = [f"--dsocr-{one}" for one in (*of_subject, *of_page)]
    tests = [one for one in suites(()) if one == "--pyargs" or one.endswith("parity")]
    return pytest.main([*tests, "-k", "test_case", "-p", plugin(), *options])


if __name__ == "__main__":
    checkpoint, page, out = map(Path, sys.argv[1:])
    main(checkpoint, page)
    record(checkpoint, page, out.with_name("recordings"))
    sys.exit(compare(checkpoint, page, out))
