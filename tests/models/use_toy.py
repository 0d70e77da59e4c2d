"""Use the toy where it is installed: write a checkpoint, read a page, time it, cost it, record it and compare it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_dsocr.cli.compare import plugin
from pytest_dsocr.cost.model import parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary
from pytest_dsocr.models import FAMILIES
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.perf.rounds import QUANTITIES
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.recording import Recording
from pytest_dsocr.reference.session import SessionRuntime
from pytest_dsocr.report.words import suites
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject
from tests.sizes import SYNTHETIC


class Forgetful(SessionSubject):
    """An implementation that forgets the bias of its own stage: not the session, which is not compared with itself."""


def subject(setup: Setup) -> Forgetful:
    """Load one as a run does."""
    session = Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)
    session.model.get_submodule("model.adapter").get_parameter("bias").zero_()
    return Forgetful(session)


def main(folder: Path, page: Path) -> None:
    """Do all but the comparison."""
    toy = FAMILIES["toy_ocr"]
    arch = replace(SYNTHETIC["tiny"], family=toy)
    model = model_class(arch)(arch)
    fill(model)
    write_checkpoint(folder, arch, model.state_dict(), byte_level_vocabulary(arch.decoder.vocab_size))
    session = Engine.from_checkpoint(str(folder), instrument="timed")
    result = session.run(page, preset="patchwork", max_new_tokens=3)
    inputs = session.prepare(page, preset="patchwork")
    [vision] = session.pipeline.vision(inputs)
    assert vision.crops is not None
    right = torch.nn.functional.linear(
        vision.crops["projector"], *(model.get_parameter(f"model.adapter.{name}") for name in ("weight", "bias"))
    )
    assert torch.equal(vision.crops["adapter"], right)
    case = make_case(page, "markdown", "patchwork", family=family_named(folder))
    assert (case.id, case.to_json()["family"]) == ("wide-patchwork-markdown", "toy_ocr")
    assert Case.from_json(page, case.to_json()) == case
    work = Workload((960, 480), case.preset, 10, 3, dtype="float32")
    assert (type(session.model).__name__, inputs.images_spatial_crop.tolist()) == ("ToyOCR", [[2, 1]])
    assert inputs.images_crop.shape == (2, 3, 320, 320)
    image_tokens = 4 * 4 + 1 + 2 * 5 * 5  # no newlines: the page, the separator, two crops
    assert result.counts.image_tokens == work.image_tokens == image_tokens
    assert list(result.stage_times)[4:7] == ["projector", "adapter", "vision_fusion"]
    seams = [f"{stage}.{view}" for stage in ("projector", "adapter") for view in ("crops", "page")]
    assert list(vision.seams)[4:9] == [*seams, "vision_fusion"]
    assert stages_of(arch, work)["adapter"].cost.matrix_flops == 2 * (4 * 4 + 2 * 5 * 5) * 64 * 64
    assert sum(parameters(arch).values()) == sum(one.numel() for one in model.parameters())
    assert "adapter" in QUANTITIES


def record(folder: Path, page: Path, golden: Path) -> None:
    """Record what the toy makes of the page, and read it back."""
    made = SessionRuntime.load(str(folder))
    case = make_case(page, "markdown", "patchwork", max_new_tokens=3, family=family_named(folder))
    seen = made.observe(case)
    with recorder(golden, made.provenance) as target:
        target.add(case, seen)
        published = target.publish()
    recorded = Recording.open(published.folder).cases[case.id].observation
    assert (recorded.steps, recorded.output, recorded.seams.keys()) == (seen.steps, seen.output, seen.seams.keys())
    assert {"adapter.crops", "adapter.page"} <= recorded.seams.keys()


def compare(folder: Path, page: Path, out: Path) -> int:
    """Run the tests of parity on the page; returns pytest's exit status."""
    of_subject = ("subject=use_toy:subject", f"checkpoint={folder}", "reference=session", f"out={out}")
    of_page = (f"pages={page}", "presets=patchwork", "max-new-tokens=3")
    options = [f"--dsocr-{one}" for one in (*of_subject, *of_page)]
    tests = [one for one in suites(()) if one == "--pyargs" or one.endswith("parity")]
    return pytest.main([*tests, "-k", "test_case", "-p", plugin(), *options])


if __name__ == "__main__":
    checkpoint, page, out = map(Path, sys.argv[1:])
    main(checkpoint, page)
    record(checkpoint, page, out.with_name("recordings"))
    sys.exit(compare(checkpoint, page, out))
