"""For implementations that wrap the vendor's own model: it is theirs to call, and what reaches it is seen.

See ``docs/adapters.md``; ``ci/implementations/wrappers.py`` has two that others wrote.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.vendor_code.code import vendor_on_cpu
from pytest_dsocr.reference.vendor_code.observe import VENDOR_IMAGE_ID, inputs_of
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.vendor import vendor_runtime


class Wrapped:
    """The vendor's model with a checkpoint's weights, and a look at what it is called with.

    Args:
        folder: the vendor's Python files.
        setup: the run's.

    Raises:
        DsocrError: where its code does not run here, or a file, the checkpoint or the device is not available.
    """

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._runtime = vendor_runtime(folder, setup)
        self.model, self.tokenizer = self._runtime.model, self._runtime.tokenizer

    def handed_to(self, method: str, call: Callable[[], object]) -> dict[str, Tensor]:
        """Give the inputs that ``call`` hands to a method of the model, such as ``generate``; it is ended there.

        Raises:
            DsocrError: where it does not call that method.
        """
        try:
            with self.watched(method):
                call()
        except HandedOverError as error:
            return inputs_of(error.arguments)
        raise DsocrError(f"the model's {method} was not called; name the method that is")

    @contextmanager
    def watched(self, method: str, max_new_tokens: int | None = None) -> Iterator[None]:
        """Give a method of the model the image's id in this vocabulary, and ``generate`` another ceiling.

        On a CPU the vendor's ``.cuda()`` leaves tensors there. Without a ceiling ``HandedOverError`` ends the call.
        """
        original = getattr(self.model, method)

        def called(input_ids: Tensor, **named: Any) -> Any:
            ids = input_ids.masked_fill(input_ids == VENDOR_IMAGE_ID, self._runtime.image_id)
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
    """Ends a call where the model is called; no ``Exception``, which a wrapper may take for a failure."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments
