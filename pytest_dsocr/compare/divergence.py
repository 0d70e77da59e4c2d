"""Where a case first breaks, and what real ports got wrong there.

The comparisons stand in the stages' order, so that the first that is WRONG is where to look; what follows comes of it.
Which of its neighbours are right tells causes apart: features of the crops alone are wrong where a position table was
resized badly, for at the size of the whole page it is not resized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from pytest_dsocr.compare.verdict import Comparison, Verdict

Found = Mapping[str, Comparison]
WIDTH = 115


@dataclass(frozen=True)
class Divergence:
    """The first comparison that is WRONG, and what to check."""

    first: Comparison
    right: int
    """Comparisons in front of it that are right."""
    cause: str

    @property
    def lines(self) -> Iterator[str]:
        """Tell it, in lines that a terminal holds."""
        yield f"first wrong  {self.first.what}, after {self.right} that are right: {self.first.measured}"
        yield from wrap(self.cause, WIDTH, initial_indent="check        ", subsequent_indent=" " * 13)


def always(found: Found) -> bool:
    """Fit whatever the other comparisons are."""
    return True


@dataclass(frozen=True)
class Symptom:
    """A first divergence as it shows, and its usual causes."""

    at: str
    """The first wrong comparison, by its name up to a dot: ``sam`` is crops' or page's."""
    cause: str
    shows: Callable[[Found], bool] = always
    """Whether the other comparisons look like it."""


def _wrong(*names: str) -> Callable[[Found], bool]:
    return lambda found: all(name in found and found[name].verdict is Verdict.WRONG for name in names)


def _right(*names: str) -> Callable[[Found], bool]:
    fine = (Verdict.MATCH, Verdict.DRIFT)
    return lambda found: all(name in found and found[name].verdict in fine for name in names)


def _misshapen(name: str) -> Callable[[Found], bool]:
    return lambda found: found[name].measured.startswith("shape ")


SYMPTOMS = (
    Symptom(
        "input_ids",
        "the crop grid: 2 to 9 crops and not 6, columns before rows, and none for a page within 640 x 640 px",
        _wrong("images_spatial_crop"),
    ),
    Symptom(
        "input_ids",
        "how many ids there are: one BOS, an image token for each row's newline and for the separator too, and the "
        "prompt's text behind the image, stripped, in the plain template (no roles, no system prompt)",
        _wrong("images_seq_mask"),
    ),
    Symptom(
        "input_ids",
        "the prompt's text and the vocabulary, for there are as many ids and the image's are in their places",
    ),
    Symptom("images_seq_mask", "that the mask is True on exactly the image tokens, made after BOS was put in front"),
    Symptom("images_spatial_crop", "that the grid is columns, then rows"),
    Symptom(
        "images_crop",
        "the filter (bicubic, antialiased), the pixels' range (-1 to 1), the channels' order, and EXIF's rotation",
        _wrong("images_ori"),
    ),
    Symptom(
        "images_crop",
        "that the page is stretched over its grid, not padded, and cut row by row, with no thumbnail among the crops",
    ),
    Symptom(
        "images_ori",
        "the whole view: centred between bars of grey 127; without crops and up to 640 px squashed instead",
    ),
    Symptom("dtypes", "that pixels are handed on in bf16, and ids in int64"),
    Symptom(
        "sam",
        "how SAM's position tables are resized for 640 px: the absolute ones bicubic with antialias, the relative ones "
        "linear with half-pixel centres; at 1024 px neither is resized, and there SAM is right",
        _right("sam.page"),
    ),
    Symptom(
        "sam",
        "SAM's relative positions (of the unscaled query, rows and columns not exchanged), its windows (padded with "
        "zeros that are attended to), which layers are global, its GELU (erf) and its epsilons (1e-6)",
    ),
    Symptom(
        "clip",
        "how CLIP's 16 x 16 positions are resized for a crop: bicubic with antialias, the class token's row kept apart",
        _right("clip.page"),
    ),
    Symptom(
        "clip",
        "CLIP: SAM's features in the place of its own patches, the quick GELU, epsilons of 1e-5, no norm at the end",
    ),
    Symptom("projector", "that CLIP's features stand before SAM's, without the class token, and the projector's bias"),
    Symptom(
        "vision_fusion",
        "the number of newlines (one for each row of the whole mosaic, not of each crop) and the one separator",
        _misshapen("vision_fusion"),
    ),
    Symptom(
        "vision_fusion",
        "the order: the crops laid out as the page they were cut from, then the whole page, the separator last",
    ),
    Symptom(
        "prefill",
        "the decoder, for vision is right: features put at the mask's places in order, the rotary halves, experts' "
        "weights not made to sum to one, shared experts added, a dense first layer, and that the prompt is prefilled "
        "with its image features, not with the image token's embedding; between two dtypes, rounding that chose "
        "another expert",
    ),
    Symptom("prefill_best", "the language model's head, for the logits after the prompt are right"),
    Symptom(
        "logits",
        "the decode steps, for prefill is right: positions that go on after the prompt, a cache that holds all of it, "
        "the last token fed once, and no image features in a step",
    ),
    Symptom(
        "tokens",
        "the choice, for the logits are right: greedy, no n-gram of 20 of prompt and output twice, the end at EOS",
    ),
    Symptom("text", "how tokens become text: special tokens kept, spaces not tidied, EOS taken off the end"),
    Symptom("spans", "how spans are found: non-greedy, across line breaks"),
    Symptom("boxes", "how coordinates are read: of 999, truncated, every box of a span"),
    Symptom("result", "what is taken out of the text, and figures' links"),
    Symptom("artefacts", "which files are written, and the sizes of the figures that are cut out"),
)
"""The first that fits is told; of one stage, the particular ones stand before the general one."""


def first_divergence(comparisons: Sequence[Comparison]) -> Divergence | None:
    """Give where ``comparisons``, in the stages' order, first break, or None where nothing is WRONG."""
    for place, comparison in enumerate(comparisons):
        if comparison.verdict is Verdict.WRONG:
            found = {one.what: one for one in comparisons}
            right = sum(one.verdict is not Verdict.NOT_COMPARED for one in comparisons[:place])
            return Divergence(comparison, right, _cause(comparison.what, found))
    return None


def _cause(what: str, found: Found) -> str:
    fitting = (one.cause for one in SYMPTOMS if one.at == what.partition(".")[0] and one.shows(found))
    return next(fitting, f"what makes {what}")
