"""``fork:FOLDER``: a changed copy of the vendor's Python files, read by its own ``infer``.

It runs in the vendor's environment. Level 3: pages are read and inputs made by the fork's ``infer``; stages and modules
are those of its model object. What a fork changes is in ``infer`` in most cases, which ``vendor:FOLDER`` does not call.
"""

from __future__ import annotations

import tempfile
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.adapters.wrapped import HandedOverError
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset, get_preset
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.level import Level
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.vendor_code.files import check_vendor_folder
from pytest_dsocr.reference.vendor_code.observe import VendorRun, inputs_of, observe_infer
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.offers import Offers
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionStages
from pytest_dsocr.subjects.vendor import vendor_runtime
from pytest_dsocr.subjects.ways import FORK

LEVEL = Level.MODULES
OWN_PROCESS = False


def check(spec: str) -> None:
    """Raise ``DsocrError`` where the folder lacks one of the vendor's files."""
    check_vendor_folder(Path(spec.removeprefix(FORK)))


def offers(spec: str) -> Offers:
    """Say that every preset and prompt is offered: a fork tells of none."""
    return Offers()


def subject(spec: str, setup: Setup) -> ForkSubject:
    """Load the fork's model with a checkpoint's weights.

    Raises:
        DsocrError: where its code does not run here, or a file, the checkpoint or the device is not available.
    """
    return ForkSubject(vendor_runtime(Path(spec.removeprefix(FORK)), setup))


class ForkSubject(SessionStages):
    """L3: the fork's ``infer``, and the stages of its model.

    It has no ``text_of``, as ``infer`` goes through ``generate`` and not through the stages.

    Args:
        runtime: the fork's code, loaded.
    """

    def __init__(self, runtime: VendorRuntime) -> None:
        super().__init__(Session(VendorModel(runtime.model), Tokenizer.wrap(runtime.tokenizer)))
        self._runtime = runtime

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end; gives what ``infer`` searches for boxes."""
        return self._infer(Case(page, prompt, preset, max_new_tokens)).text

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Give what ``infer`` hands to ``generate``."""
        return inputs_of(self._handed_over(Case(page, prompt, preset, max_new_tokens=1)))

    @cached_property
    def policy(self) -> DecodePolicy:
        """What ``infer`` tells ``generate`` on how to choose."""
        page, *_ = shipped("dev-3")
        told = self._handed_over(Case(page, PROMPTS["free"], get_preset("tiny")))
        return DecodePolicy(told["eos_token_id"], told.get("no_repeat_ngram_size", 0), told["max_new_tokens"])

    def _handed_over(self, case: Case) -> dict[str, Any]:
        """Give what ``infer`` calls ``generate`` with, and end it there."""

        def generate(input_ids: Tensor, **named: Any) -> None:
            raise HandedOverError({"input_ids": input_ids, **named})

        self._runtime.model.generate = generate  # taken off by observe_infer
        try:
            self._infer(case)
        except HandedOverError as error:
            return error.arguments
        raise DsocrError("the fork's infer did not call generate; name another folder")

    def _infer(self, case: Case) -> VendorRun:
        runtime = self._runtime
        with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings(action="ignore"):
            return observe_infer(
                runtime.model,
                runtime.tokenizer,
                case,
                Path(scratch),
                image_id=runtime.image_id,
                keep_tensors=False,
                save_results=True,
            )
