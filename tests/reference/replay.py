"""References for tests: the engine in the vendor's place, and observations played back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.recording import Recording
from suites.contract.pages import write_page
from tests.crops import CROPS

NEW_TOKENS = 6
CASES = (
    ("tiny", "free", DEEPSEEK_OCR.presets["tiny"]),
    ("square", "markdown", CROPS),
    ("landscape", "markdown", DEEPSEEK_OCR.presets["small"]),
)
MADE = Provenance(
    checkpoint="synthetic:tiny",
    checkpoint_sha256="c0" * 32,
    vendor_sha256={"modeling_deepseekocr.py": "1a" * 32, "deepencoder.py": "2b" * 32},
    device="cpu",
    dtype="float32",
    attention="eager",
    resampling=resampling(),
    versions={"python": "3.12.1", "torch": "2.13.0", "pillow": "13.0.0"},
    overrides=("image token: id 271 in place of 128815", "Tensor.cuda: stays on the CPU"),
    date="2026-01-02",
    command="dsocr vendor record vendor pages",
)

HOME = "synthetic-tiny/cpu-float32-eager"
"""Folder of its recording."""


def make_cases(folder: Path) -> list[Case]:
    """Three pages in three presets, of which one has crops."""
    return [
        Case(write_page(page, folder), DEEPSEEK_OCR.prompts[prompt], preset, NEW_TOKENS, DEEPSEEK_OCR)
        for page, prompt, preset in CASES
    ]


@dataclass
class Replay:
    """A reference that returns observations made before, and counts its requests."""

    observations: Mapping[str, ReferenceResult]
    provenance: Provenance = MADE
    asked: list[str] = field(default_factory=list)

    def observe(self, case: Case) -> ReferenceResult:
        self.asked.append(case.id)
        ceiling = f"generate: max_new_tokens {case.max_new_tokens} in place of 8192"
        return replace(self.observations[case.id], provenance=self.provenance.with_override(ceiling))


@dataclass(frozen=True)
class Made:
    """Cases, and what was seen of each."""

    pages: Path
    cases: list[Case]
    observations: dict[str, ReferenceResult]

    def reference(self, **options: Any) -> Replay:
        return Replay(self.observations, **options)


def record(golden: Path, reference: Replay, cases: Sequence[Case], *, again: bool = False) -> Recording:
    with recorder(golden, reference.provenance) as target:
        for case in target.missing(cases, again=again):
            target.add(case, reference.observe(case))
        return target.publish()


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
