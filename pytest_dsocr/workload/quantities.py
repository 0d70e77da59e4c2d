"""What is timed of a page, and what each of these times is the time of."""

from __future__ import annotations

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.workload.cost import Cost, total
from pytest_dsocr.workload.model import decode_step, stages_of
from pytest_dsocr.workload.workload import Workload

ENCODERS = ("sam", "clip", "projector")
VISION = (*ENCODERS, "vision_fusion")


def costs_of_times(arch: Architecture, work: Workload) -> dict[str, Cost]:
    """Give the cost of each quantity that :data:`pytest_dsocr.perf.rounds.QUANTITIES` names and that has one.

    ``decode`` is the step in the middle, and ``decode.early`` and ``decode.late`` are the first and the last one.
    """
    stages = {name: stage.cost for name, stage in stages_of(arch, work).items()}
    vision = total(stages[name] for name in VISION)
    found = {**{name: stages[name] for name in VISION}, "vision": vision, "prefill": stages["prefill"]}
    found["first_token"] = vision + stages["prefill"]
    if steps := work.decode_steps:
        places = {"decode": (steps + 1) // 2, "decode.early": 1, "decode.late": steps}
        found |= {name: decode_step(arch, work, work.prompt_tokens + place).cost for name, place in places.items()}
    return {**found, "page": total(stages.values())}
