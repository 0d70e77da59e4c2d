"""Subjects that run the vendor's own model: as it is, as a fork changed it, or inside of what others wrapped around it.

:class:`Wrapped` is for implementations that wrap it: it is theirs to call, and what reaches it is seen. See
``docs/adapters.md``; ``ci/implementations`` has two that others wrote.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.adapters.vendor import vendor_runtime
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.vendor_model import vendor_model
from pytest_dsocr.models import model_of_class
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case
from pytest_dsocr.reference.vendor_code.code import vendor_on_cpu
from pytest_dsocr.reference.vendor_code.observe import VendorRun, inputs_of, observe_infer
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.engine import EngineStages, EngineSubject
from pytest_dsocr.subjects.protocol import Setup


class VendorSubject(EngineSubject):
    """L3: the vendor's model, which decodes one page at a time, read through the engine's stages."""

    read_many: Any = None

    def __init__(self, runtime: VendorRuntime) -> None:
        super().__init__(Engine(vendor_model(runtime.model), Tokenizer.wrap(runtime.tokenizer)))


class ForkSubject(EngineStages):
    """L3: the fork's ``infer``, and the stages of its model.

    It has no ``text_of``, since ``infer`` uses ``generate`` and not the stages.
    """

    def __init__(self, runtime: VendorRuntime) -> None:
        super().__init__(Engine(vendor_model(runtime.model), Tokenizer.wrap(runtime.tokenizer)))
        self._runtime = runtime

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end; returns the text that ``infer`` searches for boxes."""
        return self._infer(self._case(page, prompt, preset, max_new_tokens)).text

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return what ``infer`` hands to ``generate``."""
        return inputs_of(self._handed_over(self._case(page, prompt, preset, 1)))

    @cached_property
    def policy(self) -> DecodePolicy:
        """The policy of decoding that ``infer`` passes to ``generate``."""
        page, *_ = shipped("dev-3")
        family = self.engine.family
        asked = self._case(page, family.a_prompt, family.quickest, family.decoding.max_new_tokens)
        reported = self._handed_over(asked)
        return DecodePolicy(
            reported["eos_token_id"], reported.get("no_repeat_ngram_size", 0), reported["max_new_tokens"]
        )

    def _case(self, page: Path, prompt: str, preset: Preset, max_new_tokens: int) -> Case:
        return Case(page, prompt, preset, max_new_tokens, self.engine.family)

    def _handed_over(self, case: Case) -> dict[str, Any]:
        """Return what ``infer`` calls ``generate`` with, and end it there."""

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


class Wrapped:
    """The vendor's model with a checkpoint's weights, which exposes the inputs that it is called with.

    Raises:
        DsocrError: if the vendor's code in ``folder`` does not run here, or a file, the checkpoint or the device is not
            available.
    """

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._runtime = vendor_runtime(folder, setup)
        self.model, self.tokenizer = self._runtime.model, self._runtime.tokenizer

    def handed_to(self, method: str, call: Callable[[], object]) -> dict[str, Tensor]:
        """Return the inputs that ``call`` passes to a method of the model, such as ``generate``, and stop it there.

        Raises:
            DsocrError: if it does not call that method.
        """
        try:
            with self.watched(method):
                call()
        except HandedOverError as error:
            return inputs_of(error.arguments)
        raise DsocrError(f"the model's {method} was not called; name the method that is")

    @contextmanager
    def watched(self, method: str, max_new_tokens: int | None = None) -> Iterator[None]:
        """Call a method of the model with the image's id in this vocabulary, ``generate`` with another ceiling.

        On a CPU the vendor's ``.cuda()`` leaves tensors there. Without a ceiling ``HandedOverError`` ends the call.
        """
        original, family = getattr(self.model, method), model_of_class(type(self.model))

        def called(input_ids: Tensor, **named: Any) -> Any:
            ids = input_ids.masked_fill(input_ids == family.special.image, self._runtime.image_id)
            if max_new_tokens is None:
                raise HandedOverError({"input_ids": ids, **named})
            more = {"max_new_tokens": max_new_tokens} if method == "generate" else {}
            return original(ids, **{**named, **more})

        setattr(self.model, method, called)
        try:
            with vendor_on_cpu(self.model), redirect_stdout(StringIO()), warnings.catch_warnings(action="ignore"):
                yield
        finally:
            delattr(self.model, method)


class HandedOverError(BaseException):
    """Signal that stops a call at the model; no ``Exception``, since a wrapper may take one for a failure."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments
