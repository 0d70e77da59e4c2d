"""The list of correct variants: how each is loaded, why it is correct, and what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from shutil import which
from typing import Literal

Need = Literal["gpu", "flash-attn", "compiler"]
DEV_3 = ("invoice_016", "slide_1011", "figures_201")


@dataclass(frozen=True)
class Listed:
    """A variant."""

    subject: str
    """Name for ``--subject``."""
    why: str
    """Reason why it computes the same model."""
    needs: tuple[Need, ...] = ()
    pages: tuple[str, ...] = DEV_3
    """Pages in the order in which a run reads them."""


def _own(name: str, why: str, *needs: Need, pages: tuple[str, ...] = DEV_3) -> Listed:
    return Listed(f"{__package__}.{name}", why, needs, pages)


VARIANTS = {
    "copy": _own("calls:copy", "it is the engine"),
    "reversed": _own("calls:copy", "a page's result does not depend on the pages before it", pages=DEV_3[::-1]),
    "fast": _own("calls:fast", "the engine's kernels fused, on a GPU captured; same weights and order of layers"),
    "sdpa_decoder": _own("attention:sdpa_decoder", "softmax(q k / sqrt(d)) v by one kernel"),
    "flash_decoder": _own("attention:flash_decoder", "softmax(q k / sqrt(d)) v block by block", "gpu", "flash-attn"),
    "eager_encoders": _own("attention:eager_encoders", "the definition that the fused kernel computes"),
    "math_sdpa": _own("settings:math_sdpa", "the fused attention's own plain kernel"),
    "float32_norms": _own("norms:float32_norms", "the same norms, rounded once at the end"),
    "float64_norms": _own("norms:float64_norms", "the same norms, rounded once at the end"),
    "fused_qkv": _own("products:fused_qkv", "rows of a product do not depend on each other"),
    "fused_gate_up": _own("products:fused_gate_up", "rows of a product do not depend on each other"),
    "grouped_experts": _own("products:grouped_experts", "a sum over experts in another order"),
    "padded_experts": _own("products:padded_experts", "rows of zeros are computed and never read"),
    "static_cache": _own("caches:static_cache", "a masked score has the weight 0"),
    "paged_cache": _own("caches:paged_cache", "the same keys and values, gathered"),
    "views_by_twos": _own("calls:views_by_twos", "views do not see each other"),
    "views_one_by_one": _own("calls:views_one_by_one", "views do not see each other"),
    "page_first": _own("calls:page_first", "views do not see each other"),
    "chunked_prefill": _own("calls:chunked_prefill", "attention is causal, and the cache has what came before"),
    "row_of_four": _own("calls:row_of_four", "rows of a batch do not see each other"),
    "compiled": _own("compiled:compiled", "the same operations, fused", "compiler"),
    "autotuned": _own("compiled:autotuned", "the same operations, fused, by the fastest kernels", "gpu", "compiler"),
    "captured": _own("compiled:captured", "the same operations, launched as one graph", "gpu"),
    "reduced_precision_on": _own("settings:reduced_precision_on", "torch's default sums of bfloat16", "gpu"),
    "reduced_precision_off": _own("settings:reduced_precision_off", "sums of bfloat16 in float32", "gpu"),
    "tf32": _own("settings:tf32", "a usual setting; without effect on products of bfloat16", "gpu"),
    "without_autocast": _own("settings:without_autocast", "the usual way of ports to compute in bfloat16", "gpu"),
}
"""By the name that ``--only`` takes."""

MISSING: dict[Need, Callable[[str], str]] = {
    "gpu": lambda device: "" if device.startswith("cuda") else f"it needs a GPU, and the device is {device}",
    "flash-attn": lambda _: "" if find_spec("flash_attn") else "the package flash-attn is not installed",
    "compiler": lambda device: _without_compiler(device),
}
"""For each need the reason why it is not met on a device; empty if it is met."""


def why_not(variant: Listed, device: str) -> str:
    """Return why a variant cannot run on a device of this machine; empty if it can."""
    return next((why for need in variant.needs if (why := MISSING[need](device))), "")


def _without_compiler(device: str) -> str:
    """Return why torch cannot compile: on a GPU by Triton, which builds its launchers in C, and else in C++."""
    on_gpu = device.startswith("cuda")
    if on_gpu and not find_spec("triton"):
        return "the package triton is not installed"
    names = ("cc", "gcc", "clang") if on_gpu else ("g++", "clang++")
    return "" if any(map(which, names)) else f"there is no compiler: {', '.join(names)}"
