"""What is compared: one case, read by the vendor's model and by the engine's with the same weights."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dsocr.compare.case import CaseReport, Exchange, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.special import TextTokenizer
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Instrument
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.vendor_code.observe import VendorRun, observe_infer
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.session import SessionSubject

WARM_UP_RUNS = 2  # in which the vendor's scripted activation is compiled


@dataclass(frozen=True)
class Study:
    """One case, and both models with the same weights."""

    vendor: VendorRuntime
    model: DeepseekOCR
    tokenizer: TextTokenizer
    case: Case

    @property
    def on_gpu(self) -> bool:
        """Whether the models are on a GPU, where the vendor's ``infer`` runs under autocast."""
        return self.model.device.type == "cuda"

    def observe(self) -> Observation:
        """Run the vendor's ``infer``, and keep every tensor."""
        return self.vendor.observe(self.case, keep_values=True)

    def time_vendor(self) -> VendorRun:
        """Run the vendor's ``infer`` with as little watching as its stages' times need."""
        with tempfile.TemporaryDirectory() as folder:
            return observe_infer(
                self.vendor.model,
                self.vendor.tokenizer,
                self.case,
                Path(folder),
                image_id=self.vendor.image_id,
                keep_tensors=False,
                save_results=True,
            )

    def session(self, model: Any = None, *, autocast: bool, instrument: Instrument = "off") -> Session[Any]:
        """Put a session around ``model``, or around the engine's, that stops where the vendor's run does."""
        policy = DecodePolicy(self.tokenizer.special.eos, max_new_tokens=self.case.max_new_tokens)
        return Session(model or self.model, self.tokenizer, policy=policy, instrument=instrument, autocast=autocast)

    def compare(self, theirs: Observation, model: Any = None, *, autocast: bool) -> CaseReport:
        """Compare a session with what the vendor's run gave, as the plugin does, within its limits."""
        subject = SessionSubject(self.session(model, autocast=autocast))
        answer = follow(subject, self.case, theirs, tokenizer=self.tokenizer)
        exchange = Exchange(self.case, answer, theirs, reference_s=0.0, subject_s=0.0)  # times are taken elsewhere
        return judge(exchange, tolerances(self.vendor.provenance.dtype))
