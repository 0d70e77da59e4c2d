"""Inputs as a recording keeps them: small enough to read, and telling any two apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pytest_dsocr.observation.observation import InputsDigest
from pytest_dsocr.observation.packing import pack_inputs


def digest(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """JSON values of the tensors named as the fields of ``Inputs``."""
    values: dict[str, Any] = json.loads(json.dumps(pack_inputs(InputsDigest.of(tensors))[0]))
    return values
