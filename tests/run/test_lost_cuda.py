"""A case whose subject ends CUDA: what was read of its tensors before that is judged, and nothing is read after it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import has_ended_cuda
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.run.case import run_case
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.engine import EngineSubject
from suites.contract.pages import write_page
from tests.base.test_words import accelerator
from tests.report.made import config
from tests.run.test_limits import ALIKE, SETUP, Reference
from tests.subjects.seen import seen


class Asserting(EngineSubject):
    """An engine with wrong features, which ends CUDA in ``prefill``."""

    is_lost = False
    calls_after = 0

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        self._check()
        return super().inputs(page, prompt=prompt, preset=preset)

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self._check()
        return {name: 1.5 * tensor for name, tensor in super().vision(inputs).items()}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self._check()
        self.is_lost = True
        raise accelerator(710)

    def _check(self) -> None:
        self.calls_after += self.is_lost
        if self.is_lost:
            raise accelerator(710)


def test_what_was_seen_before_the_end_of_cuda_is_judged(tiny: Engine[Any], tmp_path: Path) -> None:
    case = make_case(write_page("tiny", tmp_path), "free", "tiny", 4, family=DEEPSEEK_OCR)
    reference: Any = Reference(seen(tiny, case), ALIKE)
    own, subject = config(**vars(SETUP), out=None), Asserting(tiny)
    report, result = run_case(case, 0, subject, reference, own, Elapsed("test"), RunResources.of(own))
    verdicts, answer = {one.what: one.verdict for one in report.comparisons}, report.exchange.answer
    assert result.first_wrong == "sam.page"
    assert verdicts["images_ori"] is Verdict.MATCH
    lost = [one for one in report.comparisons if one.reason is Reason.LOST]
    assert {one.what for one in lost} >= {"prefill", "tokens", "text"}
    assert all(has_ended_cuda(one.lost_to) for one in lost)
    assert (subject.calls_after, answer.input_tensors, answer.vision_tensors) == (0, None, None)
