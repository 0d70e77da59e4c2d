"""What is compared: one page in one preset, read by the vendor's model and by the engine's with the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.attention import attention_function
from pytest_dsocr.engine.checkpoint import Checkpoint
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Instrument
from pytest_dsocr.vendor.code import build_vendor_model, load_vendor_code
from pytest_dsocr.vendor.observe import InferTokenizer, VendorRun, observe_infer

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


def build_both(checkpoint: Checkpoint, folder: Path, attn: str, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Build the engine's model and the vendor's with the same weights, the vendor's cast as its card says."""
    arch = checkpoint.architecture
    model = DeepseekOCR.empty(arch, attention_function(attn), torch.device(device), dtype)
    checkpoint.load_into(model)
    with torch.device(device):
        vendor = build_vendor_model(load_vendor_code(folder), arch, attn)
    vendor = vendor.to(dtype)
    missing, surplus = vendor.load_state_dict(model.state_dict(), strict=False)
    assert (missing, surplus) == (["model.vision_model.embeddings.position_ids"], []), (missing, surplus)
    if device != "cpu":
        model.stack_experts()
    return model, vendor
