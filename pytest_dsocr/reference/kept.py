"""Answers of the engine that later runs use again: a file for each case, named by everything that it depends on.

Pixels are not kept. They are made again from the page, and must have the kept hash.
"""

import hashlib
import json
import os
import platform
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import parse_json, sha256, write_whole
from pytest_dsocr.base.own_files import own_sha256
from pytest_dsocr.base.process import THREADS, cores
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.packing import pack, pack_inputs, unpack
from pytest_dsocr.records.provenance import OF_NO_CONSEQUENCE, Provenance
from pytest_dsocr.records.reference_result import InputsDigest, ReferenceResult
from pytest_dsocr.reference.environment import cache_folder

MOST_BYTES = 2 << 30
"""Bytes of all files together; the ones that were not used for the longest time make room."""
OF_NUMBERS = (THREADS, "ATEN_", "CUBLAS", "CUDNN", "DNNL_", "MKL_", "NVIDIA_TF32", "ONEDNN_", "PYTORCH_", "TORCH_")
"""Beginnings of the names of variables on which numbers may depend."""
INVALID = (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError, DsocrError)
MADE, OTHERS_MAY_WRITE = "made", stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class KeptAnswers:
    """A folder of the engine's answers.

    Args:
        folder: the user's own; it is made if needed.
        made: provenance of answers that are made now.
        tokenizer: the checkpoint's.
    """

    folder: Path
    made: Provenance
    tokenizer: TextTokenizer

    def has(self, case: Case) -> bool:
        """Return whether an answer to a case seems to be kept; it is not read."""
        with suppress(*INVALID):
            return self._place_of(case)[0].is_file()
        return False

    def find(self, case: Case) -> ReferenceResult | None:
        """Return the kept answer to a case; None if there is none, or it is damaged or not the user's own."""
        try:
            path, key = self._place_of(case)
            tensors, packed = _read(path)
            if packed["key"] != key:
                return None
            found = unpack(packed["answer"], tensors, Provenance.from_json(packed["provenance"]))
            os.utime(path)
            return self._with_pixels(case, found)
        except INVALID:
            return None

    def keep(self, case: Case, answer: ReferenceResult) -> None:
        """Keep an answer for later runs, if the folder can be written."""
        assert answer.provenance is not None
        path, key = self._place_of(case)
        content, tensors = pack(answer)
        packed = {"key": key, "answer": content, "provenance": answer.provenance.to_json()}
        stored = {name: one.contiguous() for name, one in tensors.items() if name not in _PIXELS}
        data = save(stored, {MADE: json.dumps(packed)})
        with suppress(OSError, DsocrError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, hashlib.sha256(data).digest() + data, shared=True)
            self._make_room()

    def _place_of(self, case: Case) -> tuple[Path, dict[str, Any]]:
        key = parse_json(json.dumps({"case": case.to_json(), **_conditions(self.made)}))  # as it is read
        return self.folder / f"{sha256(json.dumps(key, sort_keys=True).encode())}.safetensors", key

    def _with_pixels(self, case: Case, found: ReferenceResult) -> ReferenceResult | None:
        """Add the whole inputs, or return None if the page now has others."""
        made = case.family.prepare(case.page, case.prompt, case.preset, self.tokenizer).tensors
        inputs = InputsDigest.of(made, keep_values=True)
        same = pack_inputs(inputs)[0] == pack_inputs(found.inputs)[0]
        return replace(found, inputs=inputs) if same else None

    def _make_room(self) -> None:
        left = MOST_BYTES
        stamps = [(path, path.stat()) for path in self.folder.glob("*.safetensors")]
        for path, stamp in sorted(stamps, key=lambda one: one[1].st_mtime, reverse=True):
            left -= stamp.st_size
            if left < 0:
                path.unlink(missing_ok=True)


_PIXELS = frozenset(f"inputs/{name}" for name in PIXELS)


def usual_folder() -> Path | None:
    """Return the folder that is used if none is given; None for a user without a home."""
    with suppress(RuntimeError):
        return cache_folder() / "answers"
    return None


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read a file that this user wrote; raise one of :data:`INVALID` if it is damaged or may be somebody else's."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & OTHERS_MAY_WRITE:
            raise ValueError("it is no file of this user alone")
        if found.st_size > MOST_BYTES:
            raise ValueError("it is too large")
        content = opened.read()
    size = hashlib.sha256().digest_size
    digest, data = content[:size], content[size:]
    if hashlib.sha256(data).digest() != digest:
        raise ValueError("it is damaged")
    length = int.from_bytes(data[:8], "little")
    return load(data), parse_json(parse_json(data[8 : 8 + length])["__metadata__"][MADE])


def _conditions(made: Provenance) -> dict[str, Any]:
    """Return everything besides the case that the engine's numbers depend on."""
    return {
        "provenance": {name: value for name, value in made.to_json().items() if name not in OF_NO_CONSEQUENCE},
        "machine": {
            "processor": platform.machine(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "cores": cores(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        },
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(OF_NUMBERS) and (name != THREADS or made.device == "cpu")
        },
        "code": own_sha256(),
    }
