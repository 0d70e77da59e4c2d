"""Recorded arguments of the vendor's ``generate``, and comparisons of image tokens and pixels with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import Comparison, Verdict, as_expected, equal
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec

from .asked import Asked, Drawn, sizes_of
from .hints import Size, hinted
from .recipes import Recipes

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.records.reference_result import InputsDigest

RECORDED_AS = {"own_base": "tiny"}
"""Presets whose ids and view of the page are recorded under another preset."""


@dataclass(frozen=True)
class Facts:
    """A recording of inputs; see ``pytest_dsocr.reference.nearest``."""

    recorded: Mapping[str, Any]
    family: ModelSpec
    """The model that was recorded."""

    @classmethod
    def read(cls, golden: Path, family: ModelSpec, what: str = "inputs") -> Facts:
        """Read the facts nearest to the installed Pillow: the run's own if there are any, else the shipped ones."""
        from pytest_dsocr.reference.goldens import RECORDINGS, facts_of, shipped_folder
        from pytest_dsocr.reference.nearest import read_facts

        own, shipped = (facts_of(one / RECORDINGS, family) for one in (golden, shipped_folder()))
        return cls(read_facts(own if any(own.glob(f"{what}-*.json")) else shipped, what), family)

    def prepared(self, page: str, preset: str | Preset) -> InputsDigest:
        """Return the recorded inputs of a drawn page with the markdown prompt, in a byte-level vocabulary."""
        from pytest_dsocr.records.packing import unpack_inputs

        name = sizes_of(preset, self.family).name
        wanted = (page, RECORDED_AS.get(name, name))
        [row] = [row for row in self.recorded["prepared"] if (row["page"], row["preset"]) == wanted]
        return unpack_inputs(row, {})

    def grid(self, size_px: Size) -> tuple[int, int]:
        """Return the recorded columns and rows of crops for a page of this size."""
        [grid] = [tuple(row[2:]) for row in self.recorded["grids"] if tuple(row[:2]) == size_px]
        return grid

    def prompt(self, name: str) -> PromptFact:
        """Return the recorded ids of a prompt with the page ``square`` in Gundam."""
        [row] = [row for row in self.recorded["prompts"] if row["name"] == name]
        return PromptFact(row["text"], row["encoded"], [one for one, length in row["input_ids"] for _ in range(length)])

    def with_origin(self, compared: Comparison) -> Comparison:
        """Add the origin of the recorded fact to a comparison that is not MATCH."""
        made = self.recorded["provenance"]
        origin = f"recorded on {made['date']} from the vendor's infer with Pillow {made['versions']['pillow']}"
        right = compared.verdict is Verdict.MATCH
        if not right and compared.what in PIXELS and compared.error is None:
            self._check_pillow()
        return compared if right else replace(compared, details=(origin, *compared.details))

    def _check_pillow(self) -> None:
        """Raise ``NotRecordedError`` if the installed Pillow resizes otherwise than the recorded one."""
        from pytest_dsocr.contract.image import resampling
        from pytest_dsocr.reference.nearest import other_pillow
        from pytest_dsocr.reference.protocol import NotRecordedError

        if self.recorded["provenance"]["resampling"] != resampling():
            raise NotRecordedError(
                f"other pixels are recorded: {other_pillow(self.recorded['provenance']['versions'])}"
            )

    def is_vocabulary_of(self, tokenizer: TextTokenizer) -> bool:
        """Return whether a checkpoint has the vendor's vocabulary, in which the prompts were recorded."""
        encoded = [pair for row in self.recorded["prompts"] for pair in row["encoded"].items() if pair[0]]
        return any(tokenizer.encode(text) == ids for text, ids in encoded)


@dataclass(frozen=True)
class PromptFact:
    """Recorded prompt with its ids in the vendor's vocabulary."""

    text: str
    encoded: Mapping[str, list[int]]
    """The pieces that the vendor's code encoded, and their ids."""
    input_ids: list[int]

    def ids_in(self, tokenizer: TextTokenizer) -> list[int]:
        """Return the same prompt's ids in another vocabulary: the same pieces at the same places."""
        image = DEEPSEEK_OCR.special.image
        first, count = self.input_ids.index(image), self.input_ids.count(image)
        before, after = self.input_ids[1:first], self.input_ids[first + count :]
        pieces = {tuple(ids): text for text, ids in self.encoded.items()}
        own = tokenizer.special
        front, back = (tokenizer.encode(pieces[tuple(ids)]) for ids in (before, after))
        return [own.bos, *front, *[own.image] * count, *back]


def compare_image_tokens(inputs: InputsDigest, image_id: int, expected: int, why: str) -> list[Comparison]:
    """Compare the numbers of image ids and of True values in the mask with the expected one."""
    return [
        as_expected("input_ids/image", inputs.prompt_ids.count(image_id), expected, why),
        as_expected("images_seq_mask/image", inputs.image_tokens, expected, why),
    ]


@dataclass(frozen=True)
class Pixels:
    """Comparison of views of drawn pages with the recorded ones, bit for bit."""

    facts: Facts
    asked: Asked
    drawn: Drawn
    tokenizer: TextTokenizer
    recipes: Recipes
    described: dict[str, str] = field(default_factory=dict)
    """The page that is described for each kind of view."""

    def compare(self, what: str, page: str, preset: str | Preset, otherwise: str = "") -> Comparison:
        """Compare ``images_ori`` or ``images_crop`` with the recording, and name the recording if they differ.

        ``otherwise`` is the hint for this page, shown if the mistakes on a plain page do not explain the difference.
        """
        return self.facts.with_origin(self._compare(what, page, sizes_of(preset, self.facts.family), otherwise))

    def _compare(self, what: str, name: str, preset: Preset, otherwise: str) -> Comparison:
        """Compare hashes first, then locate a difference.

        A recording has hashes only. Pixels that our own contract makes locate the difference if they have the recorded
        hash.
        """
        from pytest_dsocr.compare.seams import compare_seam
        from pytest_dsocr.records.reference_result import Seam, pixels_sha256

        page, recorded = self.drawn(name), getattr(self.facts.prepared(name, preset), what)
        compared = equal(what, getattr(self.asked(page, preset), what), recorded, "every bit")
        if compared.verdict is Verdict.MATCH:
            return compared
        vendors = getattr(self.facts.family.prepare(page, "markdown", preset, self.tokenizer), what)
        if pixels_sha256(vendors) != recorded:
            return compared
        actual = self.asked.tensors(page, preset)[what]
        found = compare_seam(what, Seam.of(actual, keep_values=True), Seam.of(vendors, keep_values=True), 0.0)
        if actual.shape != vendors.shape:
            return hinted(found, lambda: self._hints(what, page, preset, "", vendors))
        dtypes = [str(one.dtype).removeprefix("torch.") for one in (actual, vendors)]
        other = f"{dtypes[0]}, the reference has {dtypes[1]}; " * (dtypes[0] != dtypes[1])
        wrong = replace(found, verdict=Verdict.WRONG, measured=f"{other}{found.measured}")
        return hinted(wrong, lambda: self._hints(what, page, preset, otherwise, vendors))

    def _hints(self, what: str, page: Path, preset: Preset, otherwise: str, expected: Tensor) -> Iterator[str]:
        """Yield the known mistakes that explain a view; else how the first such view differs, and its name later."""
        yield from self.recipes.hints(what, page, preset, otherwise)
        first = self.described.setdefault(what, f"{page.stem} in {preset.name}")
        if first != f"{page.stem} in {preset.name}":
            yield f"what makes {what} of {first}; this page is not searched again"
            return
        from pytest_dsocr.contract.image import load_image
        from pytest_dsocr.describe.pixels import describe_pixels
        from pytest_dsocr.describe.resizing import Source

        image = load_image(page)
        source = Source(image, preset, is_view=what != PIXELS[0])
        found = describe_pixels(self.asked.tensors(page, preset)[what], expected, preset.grid(*image.size), source)
        yield found.text if found else f"what makes {what}"
