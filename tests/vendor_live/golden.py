"""What the recorders share: the vendor's code run quietly, and how a golden states its making.

A recorder makes anew what the golden holds already, and so asks what it names: to record one more, add it there by its
name.
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
    """Return an object of the vendor's class that has its ``infer``, generates one token, and notes in ``seen`` of
    what."""

    def generate(self: Any, input_ids: Tensor, **others: Any) -> Tensor:
        self.seen = {"input_ids": input_ids, **others}
        return torch.cat([input_ids, torch.tensor([[others["eos_token_id"]]])], dim=1)

    kind = getattr(code.modeling, code.family.vendor.architecture)
    own = {"__init__": nn.Module.__init__, "generate": generate, "config": SimpleNamespace()}
    return type("WithoutWeights", (kind,), own)()


@contextlib.contextmanager
def quietly_on_cpu() -> Iterator[None]:
    """Run the vendor's code on a CPU, without what it prints and warns of."""
    sink = io.StringIO()
    with (
        cuda_stays(),
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
        warnings.catch_warnings(action="ignore"),
    ):
        yield


def provenance(code: VendorCode, command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """How a golden was made: the vendor's files, what was put in their place, versions, date and command."""
    return {
        "command": f"python -m tests.vendor_live.{command}",
        "date": datetime.now(UTC).date().isoformat(),
        "vendor_sha256": code.sha256,
        "overrides": [*code.overrides, *overrides, "Tensor.cuda: stays on the CPU"],
        "versions": versions(),
    }
