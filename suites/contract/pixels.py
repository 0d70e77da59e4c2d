"""Pixels held against recorded hashes, with the places where they differ and what may have made them so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_dsocr.compare.verdict import Comparison, Verdict, equal
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.families import DEFAULT

from .asked import Asked, Drawn
from .facts import Facts
from .hints import hinted, of_pixels


@dataclass(frozen=True)
class Pixels:
    """Compares views of drawn pages with the recorded ones, bit for bit."""

    facts: Facts
    asked: Asked
    drawn: Drawn
    tokenizer: TextTokenizer

    def compare(self, what: str, page: str, preset: str | Preset) -> Comparison:
        """Compare ``images_ori`` or ``images_crop``, and say of what is wrong where the recording comes from."""
        return self.facts.with_origin(self._compare(what, page, preset))

    def _compare(self, what: str, name: str, preset: str | Preset) -> Comparison:
        """Compare hashes, which do not tell where two tensors differ.

        The contract's own pixels do, where they have the recorded hash; they tell as well how the page was opened.
        """
        from pytest_dsocr.compare.seams import compare_seam
        from pytest_dsocr.observation.observation import Seam, pixels_sha256

        page, recorded = self.drawn(name), self.facts.prepared(name, DEFAULT.preset(preset).name)
        compared = equal(what, getattr(self.asked(page, preset), what), getattr(recorded, what), "every bit")
        if compared.verdict is Verdict.MATCH:
            return compared
        vendors = getattr(DEFAULT.prepare(page, "markdown", preset, self.tokenizer), what)
        if pixels_sha256(vendors) != getattr(recorded, what):
            return compared
        actual = self.asked.tensors(page, preset)[what]
        found = compare_seam(what, Seam.of(actual, keep_values=True), Seam.of(vendors, keep_values=True), 0.0)
        wrong = replace(found, verdict=Verdict.WRONG)
        return hinted(wrong, lambda: of_pixels(what, actual, vendors, page, preset, self.tokenizer))
