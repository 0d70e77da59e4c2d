"""Pixels held against recorded hashes, with the places where they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.verdict import Comparison, Verdict, equal
from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.observation.observation import InputsDigest, Seam, pixels_sha256

from .asked import Asked
from .hints import hinted, of_pixels


def compare_pixels(
    what: str, asked: Asked, page: Path, preset: str | Preset, recorded: InputsDigest, tokenizer: TextTokenizer
) -> Comparison:
    """Compare ``images_ori`` or ``images_crop`` with the recorded ones, bit for bit.

    A hash does not tell where two tensors differ. The contract's own pixels do, where they have the recorded hash; they
    tell as well how the page was opened.
    """
    compared = equal(what, getattr(asked(page, preset), what), getattr(recorded, what), "every bit")
    if compared.verdict is Verdict.MATCH:
        return compared
    vendors = getattr(prepare_inputs(page, "markdown", preset, tokenizer), what)
    if pixels_sha256(vendors) != getattr(recorded, what):
        return compared
    actual = asked.tensors(page, preset)[what]
    found = compare_seam(what, Seam.of(actual, keep_values=True), Seam.of(vendors, keep_values=True), 0.0)

    found = replace(found, verdict=Verdict.WRONG)
    return hinted(found, lambda: of_pixels(what, actual, vendors, page, preset, tokenizer))
