"""What is asked of the explaining process, and what it answers: values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.observation.observation import Seam
from pytest_dsocr.observation.summing import sample_positions

Packed = Mapping[str, Any]


@dataclass(frozen=True)
class Summary:
    """A seam as it is sent: what tells how far another tensor is from it."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str
    norm: float
    sketch: tuple[float, ...]
    sample: tuple[float, ...]

    @classmethod
    def of(cls, seam: Seam) -> Summary:
        """Take what is needed of a seam."""
        return cls(
            tuple(seam.shape),
            seam.dtype,
            seam.sha256,
            seam.norm,
            tuple(seam.sketch.tolist()),
            tuple(seam.sample.tolist()),
        )

    @classmethod
    def read(cls, packed: Packed) -> Summary:
        """Put one together again."""
        return cls(**{**packed, **{name: tuple(packed[name]) for name in ("shape", "sketch", "sample")}})

    def distance(self, seam: Seam) -> float:
        """Give the norm of the difference from ``seam`` over its norm: 0 where every bit is equal."""
        if (self.shape, self.dtype, self.sha256) == (tuple(seam.shape), seam.dtype, seam.sha256):
            return 0.0
        if self.shape != tuple(seam.shape):
            return math.inf
        apart = float((torch.tensor(self.sketch).double() - seam.sketch.double()).norm()) / (seam.norm or 1.0)
        return apart if math.isfinite(apart) else math.inf

    def distance_of_first(self, first: Tensor) -> float:
        """Give how far the values sampled from the first views are from those of ``first``, relative to these."""
        places = torch.from_numpy(sample_positions(math.prod(self.shape)))
        inside = places < first.numel()
        own = first.detach().flatten()[places[inside].to(first.device)].double().cpu()
        apart = (torch.tensor(self.sample).double()[inside] - own).norm() / own.norm().clamp_min(1e-30)
        return float(apart) if math.isfinite(float(apart)) else math.inf


@dataclass(frozen=True)
class HeardStep:
    """A step along the reference's tokens."""

    token: int
    """The subject's choice."""
    reference: int
    """The reference's choice."""
    ids: tuple[int, ...]
    """The tokens whose logits follow."""
    logits: tuple[float, ...]
    """The subject's."""


@dataclass(frozen=True)
class Question:
    """A case's first divergence, and what the subject gave."""

    case: Packed
    """See :func:`~pytest_dsocr.reference.protocol.pack_case`."""
    what: str
    """The comparison that breaks first, or where its error begins."""
    level: int
    budget_s: float
    near: float
    """Up to this relative error a tensor counts as reproduced; rounding."""
    inputs: Packed | None = None
    """The digests of the subject's inputs."""
    seams: Mapping[str, Summary] = field(default_factory=dict)
    """The subject's, with its pixels under the names of the inputs."""
    steps: tuple[HeardStep, ...] = ()
    reference_tokens: tuple[int, ...] = ()
    """What the reference said."""
    best: Mapping[int, float] = field(default_factory=dict)
    """The subject's logits of the best first tokens."""
    text: str = ""
    mmd: str | None = None
    ended_early: bool = False
    """Whether the subject said that its policy ends the output elsewhere."""

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return {**asdict(self), "best": {str(token): logit for token, logit in self.best.items()}}

    @classmethod
    def read(cls, packed: Packed) -> Question:
        """Put one together again."""
        made = {
            "seams": {name: Summary.read(seam) for name, seam in packed["seams"].items()},
            "steps": tuple(_read_step(step) for step in packed["steps"]),
            "reference_tokens": tuple(packed["reference_tokens"]),
            "best": {int(token): logit for token, logit in packed["best"].items()},
        }
        return cls(**{**packed, **made})


@dataclass(frozen=True)
class Answer:
    """What was found."""

    tried: int
    of: int
    """How many there were to try."""
    seconds: float
    without: float
    """The relative error of the session without any mistake."""
    found: tuple[str, ...] = ()
    """The ids of what explains it; several where they give the same."""
    words: tuple[str, ...] = ()
    error: float = math.inf
    """The relative error that is left with it."""
    explained: bool = False
    """Whether it is reproduced; else what was found only comes nearer."""
    beyond: str = ""
    """What follows of it, or does not, in a sentence's end."""

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON holds it: infinities, which it has no word for, as None."""
        numbers = {name: getattr(self, name) for name in ("error", "without")}
        return {**asdict(self), **{name: one if math.isfinite(one) else None for name, one in numbers.items()}}

    @classmethod
    def read(cls, packed: Packed) -> Answer:
        """Put one together again."""
        numbers = {name: math.inf if packed[name] is None else packed[name] for name in ("error", "without")}
        lists = {name: tuple(packed[name]) for name in ("found", "words")}
        return cls(**{**packed, **numbers, **lists})


def _read_step(packed: Packed) -> HeardStep:
    return HeardStep(**{**packed, "ids": tuple(packed["ids"]), "logits": tuple(packed["logits"])})
