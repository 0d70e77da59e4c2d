"""Use the toy where it is installed: write a checkpoint, read a page, time it and cost it; writes JSON to stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from pytest_dsocr.cost.model import parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.places import SYNTHETIC, family_named
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary
from pytest_dsocr.families import FAMILIES
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Seam
from pytest_dsocr.perf.rounds import QUANTITIES


def main(folder: Path, page: Path) -> None:
    """Do all of it."""
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
    case = make_case(page, "markdown", "patchwork", family=family_named(folder))
    work = Workload((960, 480), case.preset, 10, 3, dtype="float32")
    found = {
        "model": type(session.model).__name__,
        "grid": inputs.images_spatial_crop.tolist(),
        "crops": list(inputs.images_crop.shape),
        "image_tokens": [result.counts.image_tokens, work.image_tokens],
        "times": list(result.stage_times),
        "seams": {name: list(seam.shape) for name, seam in vision.seams.items()},
        "equal": bool(torch.equal(vision.crops["adapter"], right)),
        "sha256": Seam.of(vision.crops["adapter"]).sha256,
        "costs": {name: stage.cost.matrix_flops for name, stage in stages_of(arch, work).items()},
        "parameters": [sum(parameters(arch).values()), sum(one.numel() for one in model.parameters())],
        "quantities": QUANTITIES,
        "case": [case.id, case.to_json()["family"], Case.from_json(page, case.to_json()) == case],
    }
    sys.stdout.write(json.dumps(found))


main(Path(sys.argv[1]), Path(sys.argv[2]))
