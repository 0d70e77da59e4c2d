"""One case of a recording: ``<id>.json``, sealed, beside its seams' samples and sketches in ``<id>.safetensors``.

The manifest hashes these files again. The seals are needed before there is a manifest: a recorder that was killed goes
on from the cases in its work folder that are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

import safetensors.torch
from safetensors import SafetensorError

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import seal, sha256, unseal
from pytest_dsocr.base.reading import Count, FileName, Format
from pytest_dsocr.contract.presets import PresetSizes
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.records.case import Case, prompt_name
from pytest_dsocr.records.packing import pack, unpack, without_values
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import Output, ReferenceResult
from pytest_dsocr.reference.protocol import ReferenceFaultError

FORMAT = 1
CUT = "cut to a lower ceiling of tokens than was recorded; text, boxes and files are made of the tokens that are left"
RESTORE = "restore the recording from version control, or delete it and make it again with: dsocr vendor record"
CEILING = "max_new_tokens"
MALFORMED = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, SafetensorError, DsocrError)
"""What whole files with the wrong tensors raise."""
T = TypeVar("T")


class Described(TypedDict):
    """As :meth:`pytest_dsocr.records.case.Case.to_json` returns it."""

    page: FileName
    page_sha256: str
    prompt: str
    preset: PresetSizes
    max_new_tokens: Count | None


class _Case(TypedDict):
    format: Literal[1]
    case: Described
    origin: Provenance
    overrides: list[str]
    tensors_sha256: str
    observation: dict[str, Any]


def recorded(schema: type[T]) -> Format[T]:
    """Return the format of a sealed file of a recording."""
    return Format(schema, RESTORE, ReferenceFaultError, unseal)


CASES = recorded(_Case)
read_recorded, fault = CASES.read_bytes, CASES.fault
"""Of any file of a recording: its bytes; and the error that names it, what is wrong with it, and what to do."""


@dataclass(frozen=True, eq=False)
class RecordedCase:
    """What the vendor's code did with one case, and who says so."""

    described: Mapping[str, Any]
    """See :meth:`pytest_dsocr.records.case.Case.to_json`."""
    origin: Provenance
    """The reference's; what it overrode for this case alone stands in the observation's provenance."""
    observation: ReferenceResult

    def encode(self) -> tuple[bytes, bytes]:
        """Return the content of its two files; every bit of every number is kept, and every NaN as NaN."""
        packed, tensors = pack(without_values(self.observation))
        tensor_bytes, made = safetensors.torch.save(tensors), self.observation.provenance
        content = {
            "format": FORMAT,
            "case": self.described,
            "origin": self.origin.to_json(),
            "overrides": [line for line in (made.overrides if made else ()) if line not in self.origin.overrides],
            "tensors_sha256": sha256(tensor_bytes),
            "observation": packed,
        }
        return seal(content), tensor_bytes

    @classmethod
    def decode(cls, path: Path, data: bytes, tensor_bytes: bytes) -> RecordedCase:
        """Read the content of ``path`` and of the file of tensors beside it.

        Raises:
            ReferenceFaultError: where either is not whole, or not of this format.
        """
        content = CASES.decode(data, path)
        if sha256(tensor_bytes) != content["tensors_sha256"]:
            raise fault(tensors_beside(path), f"does not hold the tensors that {path.name} was written with")
        try:
            origin = Provenance.from_json(content["origin"])  # type: ignore[arg-type]
            provenance = replace(origin, overrides=(*origin.overrides, *content["overrides"]))
            observation = unpack(content["observation"], safetensors.torch.load(tensor_bytes), provenance)
            recorded = cls(content["case"], origin, observation)
            recorded.case(path.parent)
        except MALFORMED as error:
            raise fault(path, f"holds no case ({error!r})") from error
        return recorded

    @classmethod
    def read(cls, path: Path) -> RecordedCase:
        """Read ``<id>.json`` and the tensors beside it; raise as :meth:`decode` does."""
        return cls.decode(path, read_recorded(path), read_recorded(tensors_beside(path)))

    def case(self, pages: Path) -> Case:
        """Return the case, its page in the folder ``pages``."""
        return Case.from_json(pages / self.described["page"], self.described)


def up_to(
    recorded: RecordedCase, case: Case, tokenizer: Callable[[], TextTokenizer] | None = None
) -> ReferenceResult | None:
    """Return what was recorded as far as the ceiling of ``case``, the same but for its ceiling, lets the output go.

    Greedy output is a prefix of what a higher ceiling gives. What was recorded of the whole output alone is made of the
    tokens that are left. None where the recording itself ended at a lower ceiling, or without the ``tokenizer`` needed.
    """
    seen, ceiling = recorded.observation, case.max_new_tokens
    length, recorded_ceiling = len(seen.steps), recorded.described[CEILING]
    if ceiling in (length, recorded_ceiling) or (ceiling > length and length < recorded_ceiling):
        return seen
    if tokenizer is None:
        return None
    if ceiling > length:
        return seen if seen.token_ids[-1] == tokenizer().special.eos else None
    steps = seen.steps[:ceiling]
    output = Output.of(tokenizer().decode([step.token for step in steps]), case.page, case.family.form)
    made = seen.provenance and seen.provenance.with_override(CUT)
    return replace(seen, steps=steps, output=output, provenance=made)


def traits(described: Mapping[str, Any]) -> dict[str, str]:
    """Return what identifies a case, in words; its page by content."""
    preset = described["preset"]
    return {
        "page": described["page_sha256"],
        "prompt": prompt_name(described["prompt"], Case.model_in(described)),
        "preset": f"{preset['name']} {preset['base_size']}/{preset['image_size']}{' with crops' * preset['crop']}",
        CEILING: str(described[CEILING]),
    }


def case_files(case_id: str) -> tuple[str, str]:
    """Name a case's JSON and its tensors."""
    return f"{case_id}.json", f"{case_id}.safetensors"


def tensors_beside(path: Path) -> Path:
    """Return where the tensors of ``<id>.json`` lie."""
    return path.with_suffix(".safetensors")
