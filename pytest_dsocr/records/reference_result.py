"""Results of one implementation on one case, in a form that can be compared, sent and stored.

A vendor's run, a subject's run and a recording are all observations. A :class:`Seam` represents a tensor: a
summary that is small enough to record and still depends on every value, with the tensor itself if it is available.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.contract.artifacts import split_pages, write_artifacts
from pytest_dsocr.contract.markup import Box, OutputForm, clean_output, parse
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.summing import Summing, Sums, bytes_sha256, host_sums

BEST_OF_STEP = 5
BEST_OF_PREFILL = 20
FIGURES = "images"
"""Folder of the figures."""
CORNER_PX = 24
"""Side of the kept corner of a figure."""


class NotFinite(NamedTuple):
    """Count of NaN and infinite values in a tensor."""

    nans: int
    infinities: int
    values: int
    """The number of all values."""
    first: tuple[int, ...]
    """Index of the first such value."""

    @classmethod
    def among(cls, values: np.ndarray[Any, np.dtype[np.float64]]) -> NotFinite | None:
        """Count NaN and infinite values in an array of any shape; return None if all are finite."""
        spoilt = ~np.isfinite(values)
        if not spoilt.any():
            return None
        nans = int(np.isnan(values).sum())
        first = tuple(int(index) for index in np.unravel_index(int(spoilt.argmax()), values.shape))
        return cls(nans, int(spoilt.sum()) - nans, values.size, first)

    def __str__(self) -> str:
        kinds = [f"{count} {kind}" for count, kind in ((self.nans, "NaN"), (self.infinities, "infinite")) if count]
        return f"{' and '.join(kinds)} of {self.values} values, the first at {list(self.first)}"


@dataclass(frozen=True, eq=False)
class Seam:
    """Summary of a tensor that one stage hands to the next.

    ``sketch`` adds up all values with pseudo-random signs in a few buckets (Charikar, Chen and Farach-Colton's count
    sketch). It is linear, so the norm of the difference of two sketches estimates the norm of the difference of the
    tensors to 6 %, wherever they differ. See :mod:`pytest_dsocr.records.summing`.
    """

    shape: tuple[int, ...]
    dtype: str
    sha256: str
    """SHA-256 of the bytes; equal only if every bit is equal."""
    mean: float
    std: float
    norm: float
    sample: Tensor
    """Some of its values, float32, at :func:`~pytest_dsocr.records.summing.sample_positions`."""
    sketch: Tensor
    """``[SKETCH_VALUES]`` float32."""
    values: Tensor | None = None
    """The tensor itself, on the CPU; None in a recording."""
    not_finite: NotFinite | None = None
    """Count of NaN and infinite values; None if all are finite, and in old recordings (their norm shows it)."""

    @classmethod
    def of(cls, tensor: Tensor, *, keep_values: bool = False) -> Seam:
        """Summarise a tensor of any shape and float dtype, on any device."""
        own = tensor.detach().contiguous()
        if own.is_cuda:
            return cls.fetched(Summing.of(own), keep_values=keep_values)
        own = own.cpu()
        return cls._made(own, host_sums(own), keep_values)

    @classmethod
    def fetched(cls, summing: Summing, *, keep_values: bool = False) -> Seam:
        """Wait for the sums of a GPU tensor, and make its summary."""
        return cls._made(summing.host, summing.fetch(), keep_values)

    @classmethod
    def _made(cls, host: Tensor, sums: Sums, keep_values: bool) -> Seam:
        return cls(
            shape=tuple(host.shape),
            dtype=str(host.dtype).removeprefix("torch."),
            sha256=bytes_sha256(host),
            **sums._asdict(),
            values=host if keep_values else None,
            not_finite=None if math.isfinite(sums.norm) else NotFinite.among(host.double().numpy()),
        )


class Best(NamedTuple):
    """The best tokens of a decoding step, :data:`BEST_OF_STEP` of them, and their logits, the best first."""

    ids: tuple[int, ...]
    logits: tuple[float, ...]

    @classmethod
    def of(cls, logits: Tensor, count: int = BEST_OF_STEP) -> Best:
        """Return the best tokens of logits ``[V]``."""
        values, ids = logits.float().topk(min(count, len(logits)))
        return cls(tuple(ids.tolist()), tuple(values.tolist()))


class Step(NamedTuple):
    """Generated token, with the best candidates before any rule forbade one."""

    token: int
    best: Best


Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class InputsDigest:
    """Arguments of ``generate``, identified by content: rows as runs, pixels as hashes."""

    input_ids: Runs
    """Value and length of each run; lossless."""
    images_seq_mask: Runs
    images_spatial_crop: tuple[tuple[int, int], ...]
    """Columns and rows of each image."""
    images_crop: str
    """dtype, shape and SHA-256."""
    images_ori: str
    dtypes: tuple[str, ...]
    """Dtypes of the ids, the mask and the grid."""
    values: Mapping[str, Tensor] | None = None
    """The tensors by the vendor's names, on the CPU; None in a recording."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], *, keep_values: bool = False) -> InputsDigest:
        """Digest the five tensors, named as the fields of :class:`~pytest_dsocr.contract.inputs.Inputs` are."""
        own = {name: tensor.cpu() for name, tensor in tensors.items()}
        rows = [own[name] for name in (*ROWS, GRID)]
        return cls(
            input_ids=runs(own["input_ids"]),
            images_seq_mask=runs(own["images_seq_mask"]),
            images_spatial_crop=tuple(tuple(grid) for grid in own["images_spatial_crop"].tolist()),
            images_crop=pixels_sha256(own["images_crop"]),
            images_ori=pixels_sha256(own["images_ori"]),
            dtypes=tuple(str(row.dtype).removeprefix("torch.") for row in rows),
            values=own if keep_values else None,
        )

    def has_pixels_of(self, other: InputsDigest) -> bool:
        """Return whether the pixels of both are equal, to the bit."""
        return (self.images_crop, self.images_ori) == (other.images_crop, other.images_ori)

    @property
    def shapes(self) -> dict[str, str]:
        """dtype and shape of each tensor by the vendor's name, such as ``bfloat16 [1, 3, 1024, 1024]``."""
        tokens = [1, sum(length for _, length in self.input_ids)]
        shapes = zip((*ROWS, GRID), (tokens, tokens, [len(self.images_spatial_crop), 2]), strict=True)
        dtypes = dict(zip((*ROWS, GRID), self.dtypes, strict=False))  # a digest without dtypes has the shapes alone
        pixels = zip(PIXELS, (self.images_crop, self.images_ori), strict=True)
        return {
            **{name: f"{dtypes.get(name, '')} {shape}".strip() for name, shape in shapes},
            **{name: text.partition(" sha256 ")[0] for name, text in pixels},
        }

    @property
    def image_tokens(self) -> int:
        """Number of the prompt's tokens that represent images."""
        return sum(length for value, length in self.images_seq_mask if value)

    @property
    def prompt_ids(self) -> list[int]:
        """Every id of the prompt."""
        return [value for value, length in self.input_ids for _ in range(length)]


class SpanSeen(NamedTuple):
    """Span that an implementation read from its own output."""

    label: str
    boxes: tuple[Box, ...]
    """In units of 1/999 of the page."""


def spans_in(text: str, form: OutputForm, *, of_pages: bool = False) -> tuple[SpanSeen, ...]:
    """Return the spans in an output's text; several pages in one prompt are parsed one by one."""
    pages = split_pages(text) if of_pages else [text]
    return tuple(SpanSeen(span.label, span.boxes) for page in pages for span in parse(page, form).spans)


@dataclass(frozen=True)
class Artefact:
    """A file that was written."""

    bytes: int
    size_px: tuple[int, int] | None = None
    """Width and height, of a picture."""
    tables: tuple[int, ...] = field(default=(), compare=False)
    """Quantisation tables of a JPEG; none in a recording."""
    corner: tuple[tuple[int, ...], ...] | None = field(default=None, compare=False)
    """Grey levels of a figure's upper left corner; None in a recording."""

    @classmethod
    def of(cls, path: Path) -> Artefact:
        """Return the size of a file, and of a picture also what tells how it was cut and encoded."""
        if path.suffix != ".jpg":
            return cls(path.stat().st_size)
        with Image.open(path) as picture:
            is_figure = path.parent.name == FIGURES
            return cls(path.stat().st_size, picture.size, tables_of(picture), _corner(picture) if is_figure else None)


def _corner(picture: Image.Image) -> tuple[tuple[int, ...], ...] | None:
    """Return the grey levels of a picture's upper left corner; None if its content cannot be read."""
    with suppress(OSError):
        grey = np.asarray(picture.convert("L"))[:CORNER_PX, :CORNER_PX]
        return tuple(tuple(int(level) for level in row) for row in grey)
    return None


def tables_of(picture: Image.Image) -> tuple[int, ...]:
    """Return the quantisation tables of an opened JPEG; none of another picture."""
    tables: dict[int, list[int]] = getattr(picture, "quantization", {})
    return tuple(value for _, table in sorted(tables.items()) for value in table)


@dataclass(frozen=True)
class Output:
    """Text, spans and files made from the generated tokens."""

    text: str
    """Decoded with its markup, without the EOS and the white space around."""
    spans: tuple[SpanSeen, ...]
    mmd: str
    """The content of ``result.mmd``."""
    artefacts: Mapping[str, Artefact]
    """The files written, by path relative to the output folder."""
    kept: Path | None = None
    """A temporary folder with these files, of a live reference that keeps them."""

    @classmethod
    def of(cls, text: str, page: Path, form: OutputForm) -> Output:
        """Return the vendor's output for the decoded ``text`` of ``page``."""
        text = clean_output(text)
        with tempfile.TemporaryDirectory() as folder:
            paths = write_artifacts(text, page, folder, form).paths
            artefacts = {path.relative_to(folder).as_posix(): Artefact.of(path) for path in paths}
            spans = spans_in(text, form, of_pages=page.is_dir())
            return cls(text, spans, Path(folder, form.result_file).read_bytes().decode(), artefacts)


@dataclass(frozen=True, eq=False)
class ReferenceResult:
    """Results of one implementation on one case."""

    case_id: str
    inputs: InputsDigest
    seams: Mapping[str, Seam]
    """``STAGE.crops`` and ``STAGE.page`` of the encoder's stages that were run, ``vision_fusion``, and ``prefill``
    (the logits of the first token)."""
    prefill_best: Best
    """The best :data:`BEST_OF_PREFILL` first tokens."""
    steps: tuple[Step, ...]
    output: Output
    provenance: Provenance | None = None
    """Provenance; None if the observation never leaves the process that made it."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens generated, the EOS included."""
        return tuple(step.token for step in self.steps)


def runs(row: Tensor) -> Runs:
    """Return value and length of each run in ``[1, S]``."""
    [values] = row.tolist()
    return tuple((int(value), len(list(run))) for value, run in groupby(values))


def pixels_sha256(views: Tensor) -> str:
    """Return dtype, shape and hash of a tensor."""
    return f"{str(views.dtype).removeprefix('torch.')} {list(views.shape)} sha256 {bytes_sha256(views)}"
