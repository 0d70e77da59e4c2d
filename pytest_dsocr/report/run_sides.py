"""Both sides of a run, and the options that its verdicts depend on."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from pytest_dsocr.base.files import sha256
from pytest_dsocr.base.reading import is_regular
from pytest_dsocr.base.words import plain
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.source import SubjectSource, source_of
from pytest_dsocr.reference.goldens import MANIFEST

if TYPE_CHECKING:
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.reference.protocol import Reference

MAY_DIFFER = (
    *("device", "explain", "given_by", "golden", "isolate", "out", "pages", "reference", "reference_device", "shard"),
    *("start_limit", "subject", "subject_time_limit", "time_limit", "vendor_env"),
)
"""Options by which machines of one run may differ, and those of which its result says more exactly what came."""
ReferenceKind = Literal["recorded", "live", "engine"]
LevelWord = Annotated[str, Meta(pattern=rf"\A({'|'.join(map(str, Level))})\Z")]
ShardText = Annotated[str, Meta(pattern=r"\A[1-9]\d{0,5}/[1-9]\d{0,5}\Z")]
"""Part of a run, such as ``1/4``."""


class RunSides(Struct, kw_only=True, frozen=True):
    """Subject, reference and options of a run."""

    subject: str
    level: LevelWord | None
    """Level of the subject; None if it was given no case."""
    checkpoint: str
    device: str
    dtype: str
    attention: str
    reference: ReferenceKind
    """``engine`` where it answers for what no recording holds; each case says whether it did."""
    where: str
    """The folder of the recording, or of the vendor's files; empty where there is neither."""
    key: str
    """The reference's; see :class:`~pytest_dsocr.records.provenance.RecordingKey`."""
    provenance: Provenance
    nearest: str
    """Why it is another recording than the run's own key has; empty where it is not."""
    pages: list[str]
    shard: ShardText | None
    """Part of the pages; None for all."""
    presets: list[str]
    prompts: list[str]
    given_by: dict[str, str]
    """Source of each option, by its name: its flag, its variable, or its key in an ini file."""
    settings: dict[str, Any]
    """Every option that a verdict may depend on, as a JSON value."""
    source: SubjectSource
    recording_sha256: str
    """SHA-256 of the recording's manifest, which has the hash of each file; empty without a recording."""

    @classmethod
    def of(cls, config: Config, reference: Reference, level: Level | None) -> RunSides:
        """Return what is compared with what; ``level`` is what the subject offers, where it has been asked."""
        kind, where = _kind(config, reference)
        return cls(
            subject=config.subject,
            level=None if level is None else str(level),
            checkpoint=config.checkpoint,
            device=config.device.partition(":")[0],  # each worker may have a GPU of its own
            dtype=config.dtype,
            attention=config.attention,
            reference=kind,
            where=where,
            key=str(reference.provenance.key),
            provenance=reference.provenance,
            nearest=getattr(reference, "stands_in", ""),
            pages=[plain(page) for page in config.pages],
            shard=None if config.shard is None else str(config.shard),
            presets=[*config.presets],
            prompts=[*config.prompts],
            given_by=dict(config.given_by),
            settings=_settings(config),
            source=source_of(config.subject),
            recording_sha256=_manifest_sha256(where),
        )


def _settings(config: Config) -> dict[str, Any]:
    """Return every option as a JSON value, but for those that say where something lies, or how long it may take."""
    values = {one.name: getattr(config, one.name) for one in fields(config) if one.name not in MAY_DIFFER}
    values["xfails"] = config.xfails and sha256(config.xfails.read_bytes())
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values, order="sorted"))
    return found


@cache
def _manifest_sha256(where: str) -> str:
    """Hash the manifest of a recording; return an empty text for another folder."""
    manifest = Path(where, MANIFEST)
    return sha256(manifest.read_bytes()) if where and is_regular(manifest) else ""


def _kind(config: Config, reference: Reference) -> tuple[ReferenceKind, str]:
    """Return the kind of a reference, and the place that its answers come from."""
    from pytest_dsocr.reference.engine import EngineReference
    from pytest_dsocr.reference.recording import RecordedReference

    if isinstance(reference, RecordedReference):
        return "recorded", str(reference.recording.folder)
    if isinstance(reference, EngineReference):
        return "engine", str(reference.recorded.recording.folder) if reference.recorded else ""
    return "live", str(config.reference or type(reference).__qualname__)
