"""Shared parts of the recorders: run the vendor's code silently, and make a golden's provenance.

A recorder records the entries of its golden again. To record another one, add its name to the golden first.
"""

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.records.provenance import versions
from pytest_dsocr.reference.vendor_code.code import VendorCode, cuda_stays


def without_weights(code: VendorCode) -> Any:
    """Return an object with the vendor's ``infer`` that generates one token and keeps its arguments in ``seen``."""

    def generate(self: Any, input_ids: Tensor, **others: Any) -> Tensor:
        self.seen = {"input_ids": input_ids, **others}
        return torch.cat([input_ids, torch.tensor([[others["eos_token_id"]]])], dim=1)

    kind = getattr(code.modeling, code.family.vendor.architecture)
    own = {"__init__": nn.Module.__init__, "generate": generate, "config": SimpleNamespace()}
    return type("WithoutWeights", (kind,), own)()


@contextlib.contextmanager
def quietly_on_cpu() -> Iterator[None]:
    """Run the vendor's code on a CPU without its output and warnings."""
    sink = io.StringIO()
    with (
        cuda_stays(),
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
        warnings.catch_warnings(action="ignore"),
    ):
        yield


def provenance(code: VendorCode, command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the provenance of a golden: the vendor's files, overrides, versions, date and command."""
    return {
        "command": f"python -m tests.vendor_live.{command}",
        "date": datetime.now(UTC).date().isoformat(),
        "vendor_sha256": code.sha256,
        "overrides": [*code.overrides, *overrides, "Tensor.cuda: stays on the CPU"],
        "versions": versions(),
    }
