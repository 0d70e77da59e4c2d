"""What is compared: one page in one preset, read by the vendor's model and by the engine's with the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.attention import attention_function
from pytest_dsocr.engine.checkpoint import Checkpoint
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.placement import device_named, dtype_named
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Instrument
from pytest_dsocr.vendor.code import VendorCode, build_vendor_model
from pytest_dsocr.vendor.observe import InferTokenizer, VendorRun, observe_infer

WARM_UP_RUNS = 2  # in which the vendor's scripted activation is compiled
PROMPT = "<image>\n<|grounding|>Convert the document to markdown. "


@dataclass(frozen=True)
class Case:
    """One page on disk in one preset, and how many tokens both sides decode."""

    checkpoint: Checkpoint
    image: Path
    preset: Preset
    tokens: int
    folder: Path
    """Where the vendor's ``infer`` writes."""

    def observe(self, vendor: Any, *, keep_tensors: bool = True) -> VendorRun:
        """Run the vendor's ``infer``."""
        return observe_infer(
            vendor,
            InferTokenizer(self.checkpoint.tokenizer),
            self.image,
            self.folder,
            prompt=PROMPT,
            preset=self.preset,
            max_new_tokens=self.tokens,
            keep_tensors=keep_tensors,
            save_results=True,
        )

    def session(self, model: Any, *, autocast: bool, instrument: Instrument = "off") -> Session[Any]:
        """Put a session around ``model`` that stops where the vendor's run does."""
        policy = DecodePolicy(self.checkpoint.tokenizer.special.eos, max_new_tokens=self.tokens)
        return Session(model, self.checkpoint.tokenizer, policy=policy, instrument=instrument, autocast=autocast)

    def prepare(self, session: Session[Any]) -> Inputs:
        """Make the page's inputs."""
        return session.prepare(self.image, prompt=PROMPT, preset=self.preset)


def build_both(checkpoint: Checkpoint, code: VendorCode, attn: str, device: str, dtype: str) -> tuple[Any, Any]:
    """Build the engine's model and the vendor's with the same weights, the vendor's cast as its card says."""
    arch = checkpoint.architecture
    place, number_type = device_named(device), dtype_named(dtype)
    model = DeepseekOCR.empty(arch, attention_function(attn), place, number_type)
    checkpoint.load_into(model)
    with place:
        vendor = build_vendor_model(code, arch, attn)
    vendor = vendor.to(number_type)
    missing, surplus = vendor.load_state_dict(model.state_dict(), strict=False)
    assert (missing, surplus) == (["model.vision_model.embeddings.position_ids"], []), (missing, surplus)
    if place.type == "cuda":
        model.stack_experts()
    return model, vendor
