"""What is compared: one case, read by the vendor's model and by the engine's with the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.engine.attention import attention_function
from pytest_dsocr.engine.checkpoint import Checkpoint
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.placement import device_named, dtype_named
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Instrument
from pytest_dsocr.observation.case import Case
from pytest_dsocr.reference.vendor_code.build import load_vendor_model
from pytest_dsocr.reference.vendor_code.code import VendorCode
from pytest_dsocr.reference.vendor_code.observe import VendorRun, observe_infer
from pytest_dsocr.reference.vendor_code.runtime import vendor_tokenizer

WARM_UP_RUNS = 2  # in which the vendor's scripted activation is compiled


@dataclass(frozen=True)
class Study:
    """One case, and the checkpoint that both sides have."""

    checkpoint: Checkpoint
    case: Case
    folder: Path
    """Where the vendor's ``infer`` writes."""

    def observe(self, vendor: Any, *, keep_tensors: bool = True) -> VendorRun:
        """Run the vendor's ``infer``."""
        return observe_infer(
            vendor,
            vendor_tokenizer(self.checkpoint),
            self.case,
            self.folder,
            keep_tensors=keep_tensors,
            keep_logits=keep_tensors,
            save_results=True,
        )

    def session(self, model: Any, *, autocast: bool, instrument: Instrument = "off") -> Session[Any]:
        """Put a session around ``model`` that stops where the vendor's run does."""
        policy = DecodePolicy(self.checkpoint.tokenizer.special.eos, max_new_tokens=self.case.max_new_tokens)
        return Session(model, self.checkpoint.tokenizer, policy=policy, instrument=instrument, autocast=autocast)

    def prepare(self, session: Session[Any]) -> Inputs:
        """Make the page's inputs."""
        return session.prepare(self.case.page, prompt=self.case.prompt, preset=self.case.preset)


def build_both(checkpoint: Checkpoint, code: VendorCode, attn: str, device: str, dtype: str) -> tuple[Any, Any]:
    """Build the engine's model and the vendor's with the same weights, the vendor's cast as its card says."""
    place = device_named(device)
    model = DeepseekOCR.empty(checkpoint.architecture, attention_function(attn), place, dtype_named(dtype))
    checkpoint.load_into(model)
    vendor = load_vendor_model(code, checkpoint, device=device, dtype=dtype, attention=attn)
    if place.type == "cuda":
        model.stack_experts()
    return model, vendor
