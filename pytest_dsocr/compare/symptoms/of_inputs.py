"""What real ports got wrong in prompt, image and schedule."""

from __future__ import annotations

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.symptoms.scene import Symptom

GRID, MASK = "images_spatial_crop", "images_seq_mask"


INPUTS = (
    Symptom(
        "input_ids",
        "the crop grid's order: columns, then rows",
        lambda scene: scene.has(Sign.GRID_EXCHANGED, GRID),
        ("GRD-06",),
    ),
    Symptom(
        "input_ids",
        "when a page is cropped: as soon as one side is above 640 px, however many images there are",
        lambda scene: scene.has(Sign.NO_CROPS, GRID),
        ("GRD-10", "GRD-13"),
    ),
    Symptom(
        "input_ids",
        "when a page is cropped: not where both sides are up to 640 px, 640 included",
        lambda scene: scene.has(Sign.CROPS, GRID),
        ("GRD-02", "GRD-10"),
    ),
    Symptom(
        "input_ids",
        "the crop grid's limit: 2 to 9 crops; the vendor's code for vLLM takes 6, its own infer 9",
        lambda scene: scene.has(Sign.UP_TO_SIX, GRID),
        ("GRD-01",),
    ),
    Symptom(
        "input_ids",
        "the crop grid: 2 to 9 crops and not 6, columns before rows, of grids equally near the larger where the page "
        "has more than half of its pixels, and none for a page within 640 x 640 px",
        lambda scene: scene.wrong(GRID),
        ("GRD-01", "GRD-06"),
    ),
    Symptom(
        "input_ids",
        "that BOS, id 0, is put in front: the plain template has none of its own",
        lambda scene: scene.has(Sign.NO_BOS),
        ("PRM-02",),
    ),
    Symptom(
        "input_ids",
        "that BOS is put in front once, and the tokenizer adds no special tokens of its own",
        lambda scene: scene.has(Sign.TWO_BOS),
        ("PRM-10",),
    ),
    Symptom(
        "input_ids",
        "where the image stands: in front of the prompt's text, right behind BOS",
        lambda scene: scene.has(Sign.IDS_REORDERED),
        ("PRM-01",),
    ),
    Symptom(
        "input_ids",
        "the image token of the separator, one behind all of an image's",
        lambda scene: scene.has(Sign.ONE_TOKEN_FEWER, MASK),
        ("SCH-04",),
    ),
    Symptom(
        "input_ids",
        "how many image tokens there are: by this preset's sizes, one more for each row's newline (of the rows of the "
        "whole mosaic, not of each crop, columns and rows not exchanged), and one for the separator",
        lambda scene: scene.has(Sign.OTHER_COUNT, MASK),
        ("SCH-01", "SCH-04", "SCH-05"),
    ),
    Symptom(
        "input_ids",
        "the prompt's text: this request's own, stripped, in the plain template, with nothing added, and none of it "
        "lost where it holds <image> more often than there are images",
        lambda scene: scene.has(Sign.BEHIND_IMAGE),
        ("PRM-04", "PRM-06", "PRM-08", "PRM-11"),
    ),
    Symptom(
        "input_ids",
        "how the ids are put together: one BOS, the image's tokens, and the prompt's text behind them, stripped, in "
        "the plain template (no roles, no system prompt)",
        lambda scene: scene.wrong(MASK),
        ("PRM-01", "PRM-06"),
    ),
    Symptom(
        "input_ids",
        "the prompt's text and the vocabulary, for there are as many ids and the image's are in their places",
    ),
    Symptom(
        MASK,
        "that the mask gets a False in front where the ids get their BOS",
        lambda scene: scene.has(Sign.MASK_TOO_EARLY),
        ("SCH-07",),
    ),
    Symptom(
        MASK,
        "that the mask is True on the image's own tokens alone, where the prompt has them: not made for an image in "
        "front of all text, nor by looking for their id, which an <image> in the user's text has too",
        bugs=("SCH-08",),
    ),
    Symptom(
        GRID,
        "that the grid is columns, then rows; that it has 2 to 9 crops, not 6; that a page within 640 x 640 px, 640 "
        "included, has none; and of grids equally near the larger where the page has more than half of its pixels",
        bugs=("GRD-01", "GRD-02", "GRD-06", "GRD-10"),
    ),
    Symptom(
        "images_crop",
        "how many crops there are and of what size and dtype: the grid's, no thumbnail among them, 640 px whatever the "
        "other sizes are, bf16; and what stands for the crops of a page without any",
        lambda scene: scene.misshapen,
        ("GRD-08", "GRD-12", "SCH-02"),
    ),
    Symptom(
        "images_crop",
        "the crops' order: row by row",
        lambda scene: scene.has(Sign.VIEWS_REORDERED),
        ("GRD-09",),
    ),
    Symptom(
        "images_crop",
        "the channels' order: red, green, blue",
        lambda scene: scene.has(Sign.CHANNELS_REORDERED),
        ("IMG-09",),
    ),
    Symptom(
        "images_crop",
        "that crops are not cast to whole numbers on their way",
        lambda scene: scene.has(Sign.WHOLE_LEVELS),
        ("DTP-01",),
    ),
    Symptom(
        "images_crop",
        "how levels become pixels: over 255, less 0.5, over 0.5, all in float32, and rounded to bfloat16 once, at the "
        "end",
        lambda scene: scene.has(Sign.ROUNDED),
    ),
    Symptom(
        "images_crop",
        "the filter (Pillow's bicubic, antialiased, in one step), the pixels' range (-1 to 1, computed in float32 and "
        "rounded to bfloat16 once), the channels' order, what becomes of transparency (dropped), and EXIF's rotation",
        lambda scene: scene.wrong("images_ori"),
        ("IMG-01", "IMG-03", "IMG-08", "IMG-09", "IMG-11"),
    ),
    Symptom(
        "images_crop",
        "that the page is stretched over its grid, not padded, resized as a whole before it is cut (not each crop from "
        "its own box), and cut row by row, with no thumbnail among the crops, which are not cast to whole numbers on "
        "their way",
        bugs=("DTP-01", "GRD-09", "GRD-11"),
    ),
    Symptom(
        "images_ori",
        "the bars beside the page: grey 127 of 255, put around the page before its levels become pixels (-0.0039, not "
        "0)",
        lambda scene: scene.has(Sign.BARS_ALONE),
        ("IMG-04",),
    ),
    Symptom(
        "images_ori",
        "where the page stands in the whole view: centred between bars of grey 127 and not squashed (without crops and "
        "up to 640 px squashed instead); its shorter side rounded, not truncated; and half of what is left, rounded to "
        "even, in front of it",
        lambda scene: scene.has(Sign.OTHER_BARS),
        ("IMG-05",),
    ),
    Symptom(
        "images_ori",
        "how levels of the whole view become pixels: over 255, less 0.5, over 0.5, all in float32, and rounded to "
        "bfloat16 once, at the end",
        lambda scene: scene.has(Sign.ROUNDED),
    ),
    Symptom(
        "images_ori",
        "the whole view: centred between bars of grey 127 (-0.0039), its shorter side rounded, and half of what is "
        "left, rounded, in front of it; without crops and up to 640 px squashed instead; and, with no crops to tell, "
        "the filter, the pixels' range and rounding, the channels' order, transparency and EXIF's rotation",
        bugs=("IMG-04", "IMG-05", "IMG-07"),
    ),
    Symptom("dtypes", "that ids and grid are int64, and the mask is bool"),
)
