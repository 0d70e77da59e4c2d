"""Every dimension of a model, read from the vendor's ``config.json``; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.reading import Format
from pytest_dsocr.layers.sizes import DecoderConfig, Dimension
from pytest_dsocr.models import model_of
from pytest_dsocr.models.spec import EncoderSizes, ModelSpec

OBJECT = Format(dict[str, Any], "give a folder that holds a checkpoint's whole config.json", MachineError)


class _Projector(Struct, frozen=True):
    projector_type: Literal["linear"] = "linear"


class _Vision(Struct, frozen=True):
    model_name: str = ""


class _Named(Struct):
    architectures: tuple[str, ...] = ()
    vision_config: _Vision = _Vision()


class _Config(Struct, kw_only=True):
    language_config: DecoderConfig
    projector_config: _Projector = _Projector()
    sliding_window_size: Dimension | None = None
    sliding_window: Dimension | None = None


@dataclass(frozen=True)
class Architecture:
    """Dimensions of a whole model.

    Raises:
        DsocrError: if they break a rule, such as heads that do not divide the width.
    """

    family: ModelSpec = field(repr=False)
    encoder: EncoderSizes
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        for rule, holds in {**self.encoder.rules, **self.decoder.rules}.items():
            if not holds:
                raise DsocrError(f"config.json breaks this rule: {rule}; correct its dimensions")

    @classmethod
    def published(cls, family: ModelSpec) -> Architecture:
        """Return the dimensions of a model's published checkpoint."""
        return cls(family, family.encoder.published())

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], where: str = "config.json", family: ModelSpec | None = None
    ) -> Architecture:
        """Read a parsed ``config.json``, of the model that it names or of ``family``.

        Raises:
            DsocrError: if it describes another kind of model.
        """
        own = _without_nulls(config)
        if isinstance(language := own.get("language_config", {}), dict):
            own["language_config"] = {**own, **language}
        named = _format(_Named).convert(own, where)
        family = family or model_of(named.architectures, named.vision_config.model_name)
        found = _format(_whole(family.encoder)).convert(own, where)
        _refuse_other_decoders(own["language_config"])
        ring = found.sliding_window_size or found.sliding_window
        return cls(family.with_ring(ring), found.vision_config, found.language_config)

    @classmethod
    def from_folder(cls, folder: Path, family: ModelSpec | None = None) -> Architecture:
        """Read ``folder/config.json``."""
        path = folder / "config.json"
        return cls.from_config(OBJECT.read(path), str(path), family)

    def to_config(self) -> dict[str, Any]:
        """Return a ``config.json`` that :meth:`from_config`, the vendor's code and other projects' loaders read."""
        published, ring = self.family.vendor.published, self.family.cache.ring
        decoder = {f.name: getattr(self.decoder, f.name) for f in fields(DecoderConfig)}
        decoder |= {**published["decoder"], **({} if ring is None else {"sliding_window_size": ring})}
        if decoder["v_head_dim"]:  # 0 in a model whose loaders do not read it
            decoder["v_head_dim"] = self.decoder.head_dim
        projector = {"input_dim": self.encoder.projector_input, "n_embed": self.decoder.hidden_size}
        return {
            "architectures": [self.family.vendor.architecture],
            **published["whole"],
            "vision_config": {**published["vision"], **self.encoder.to_config()},
            "projector_config": {**published["projector"], **projector},
            "language_config": {**published["language"], **decoder},
            **decoder,
            **({} if ring is None else {"sliding_window": ring}),
        }


@cache
def _whole(encoder: type) -> Any:
    """Return the schema of a whole config whose ``vision_config`` is of this type."""
    return msgspec.defstruct("Config", [("vision_config", encoder)], bases=(_Config,), kw_only=True)


def _format(schema: Any) -> Format[Any]:
    return Format(schema, "point at the folder that holds a checkpoint's own config.json", MachineError)


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop every null, which means the default of the vendor's code."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def _refuse_other_decoders(language: dict[str, Any]) -> None:
    expected = {"use_mla": False, "topk_method": "greedy", "scoring_func": "softmax", "rope_scaling": None}
    where_absent = {**expected, "use_mla": True}
    for name, value in expected.items():
        found = language.get(name, where_absent[name])
        if found != value:
            raise DsocrError(
                f"config.json has {name}={found!r} where the models of this family have {value!r}; the engine "
                "computes no other decoder"
            )
