"""Stand-ins for subject and reference that answer at once.

The file is copied into a temporary repository and must not import this project's tests. It imports torch only in
functions: the process that distributes the tests to workers starts without torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsocr.contract.markup import Box
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError

if TYPE_CHECKING:
    from pytest_dsocr.records.reference_result import ReferenceResult

TEXT = "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nMinutes"
BOXES = (Box(1, 2, 3, 4),)


class Reader:
    """A subject of one method, right to the letter."""

    text = TEXT

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return self.text


class Counted(Reader):
    """Reader that appends each page's name to ``read.txt``."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        with Path("read.txt").open("a", encoding="utf-8") as notes:
            notes.write(f"{page.name}\n")
        return self.text


class Misreader(Reader):
    """Reader that gets a word wrong."""

    text = TEXT.replace("Minutes", "Minuets")


class Misplacer(Reader):
    """Reader that places a box one unit off."""

    text = TEXT.replace("3, 4", "3, 5")


class Broken(Reader):
    """Reader that raises an error for every page."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        raise ValueError(f"no kernel for {page.name}")


class Asserting(Reader):
    """Reader whose second page ends CUDA: from then on every call fails, as every use of the GPU would."""

    is_lost = False

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        import torch

        self.is_lost |= page.stem == "second"
        if self.is_lost:
            error = torch.AcceleratorError("CUDA error: device-side assert triggered")
            vars(error)["error_code"] = 710
            raise error
        return self.text


class Unmade(Reader):
    """Reader that cannot be loaded."""

    def __init__(self) -> None:
        raise RuntimeError("no weights")


class Reference:
    """Reference with one result for every case."""

    @property
    def provenance(self) -> Provenance:
        from pytest_dsocr.engine.checkpoint import resolve

        return Provenance(
            checkpoint="mini",
            checkpoint_sha256=resolve("mini").sha256,
            vendor_sha256={"modeling_deepseekocr.py": "cd" * 32},
            device="cpu",
            dtype="float32",
            attention="eager",
            resampling="85ab7edb4ccf5db9",
            versions={},
            overrides=(),
            date="2026-11-21",
            command="dsocr vendor record",
        )

    def observe(self, case: Case) -> ReferenceResult:
        from pytest_dsocr.records.reference_result import Best, InputsDigest, Output, ReferenceResult, SpanSeen, Step

        best = Best((1,), (8.0,))
        return ReferenceResult(
            case.id,
            InputsDigest((), (), (), "", "", ()),
            {},
            best,
            (Step(1, best),),
            Output(TEXT, (SpanSeen("title", BOXES),), "# Minutes\n", {}),
        )

    def close(self) -> None:
        """Do nothing."""


class Silent(Reference):
    """Reference with a dead process."""

    def observe(self, case: Case) -> ReferenceResult:
        raise ReferenceFaultError("the vendor's process ended without a word; look into its log")


class Unrecorded(Reference):
    """Recording without the case."""

    def observe(self, case: Case) -> ReferenceResult:
        raise NotRecordedError(f"the recording holds nothing of {case.id}")


class Unopened(Reference):
    """Reference that cannot be opened."""

    def __init__(self) -> None:
        raise ReferenceFaultError("there is no recording of this key; make one")
