"""Files of one recorded case: ``<id>.json`` with a seal, and samples and sketches of tensors in ``<id>.safetensors``.

The seal, a hash, is checked before there is a manifest: an interrupted recorder continues after its complete cases.
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
"""Exceptions raised for intact files with wrong content."""
T = TypeVar("T")


class Described(TypedDict):
    """Result of :meth:`pytest_dsocr.records.case.Case.to_json`."""

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
"""Functions for any file of a recording: read its bytes, and make an error with advice."""


@dataclass(frozen=True, eq=False)
class RecordedCase:
    """Result of the vendor's code for one case, with its provenance."""

    described: Mapping[str, Any]
    """The case; see :meth:`pytest_dsocr.records.case.Case.to_json`."""
    origin: Provenance
    """Provenance of the reference. That of the observation may have more overrides, for this case only."""
    observation: ReferenceResult

    def encode(self) -> tuple[bytes, bytes]:
        """Return the content of both files, with every bit of every number."""
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
        """Decode the content of ``path`` and of its file of tensors.

        Raises:
            ReferenceFaultError: if either is damaged or of another format.
        """
        content = CASES.decode(data, path)
        if sha256(tensor_bytes) != content["tensors_sha256"]:
            raise fault(tensors_beside(path), f"does not contain the tensors that {path.name} was written with")
        try:
            origin = Provenance.from_json(content["origin"])  # type: ignore[arg-type]
            provenance = replace(origin, overrides=(*origin.overrides, *content["overrides"]))
            observation = unpack(content["observation"], safetensors.torch.load(tensor_bytes), provenance)
            recorded = cls(content["case"], origin, observation)
            recorded.case(path.parent)
        except MALFORMED as error:
            raise fault(path, f"does not contain a case ({error!r})") from error
        return recorded

    @classmethod
    def read(cls, path: Path) -> RecordedCase:
        """Read ``<id>.json`` and its tensors; raise the errors of :meth:`decode`."""
        return cls.decode(path, read_recorded(path), read_recorded(tensors_beside(path)))

    def case(self, pages: Path) -> Case:
        """Return the case with its page in the folder ``pages``."""
        return Case.from_json(pages / self.described["page"], self.described)


def up_to(
    recorded: RecordedCase, case: Case, tokenizer: Callable[[], TextTokenizer] | None = None
) -> ReferenceResult | None:
    """Return the result of a recorded case up to the limit of tokens of ``case``, which is otherwise the same.

    Greedy output is a prefix of the output with a higher limit. Text, spans and files are made again from the remaining
    tokens. Return None if the recording ended at a lower limit, or a needed ``tokenizer`` is missing.
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
    """Return the parts that identify a case as texts, the page by its content."""
    preset = described["preset"]
    return {
        "page": described["page_sha256"],
        "prompt": prompt_name(described["prompt"], Case.model_in(described)),
        "preset": f"{preset['name']} {preset['base_size']}/{preset['image_size']}{' with crops' * preset['crop']}",
        CEILING: str(described[CEILING]),
    }


def case_files(case_id: str) -> tuple[str, str]:
    """Return the names of a case's two files."""
    return f"{case_id}.json", f"{case_id}.safetensors"


def tensors_beside(path: Path) -> Path:
    """Return the file with the tensors of ``<id>.json``."""
    return path.with_suffix(".safetensors")
