"""What real ports got wrong in SAM, CLIP, the projector and the fusion.

Features of the crops alone are wrong where a position table was resized badly, for at the size of the whole page it is
not resized.
"""

from __future__ import annotations

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.symptoms.scene import Scene, Symptom

GLOBAL_BLOCKS = (2, 5, 8, 11)
"""SAM's, in the vendor's model."""


def _in_front_of_global(scene: Scene) -> bool:
    return scene.depth is not None and scene.depth < GLOBAL_BLOCKS[0]


VISION = (
    Symptom(
        "sam",
        "what of SAM is not finite: in float16 all above 65,504 is infinite (scores with relative positions added to "
        "them, norms, the blocks' MLPs), and the next softmax or norm makes NaN of it: compute these in float32, or "
        "all in bfloat16; windows that are masked whole; and weights left as they were allocated",
        lambda scene: scene.has(Sign.NOT_FINITE),
    ),
    Symptom(
        "sam",
        "how SAM's absolute positions are resized for 640 px: bicubic with antialias, whose a is -0.5; at 1024 px they "
        "are not, and there block {depth} is right",
        lambda scene: scene.crops_alone and _in_front_of_global(scene),
        ("SAM-01", "SAM-02", "SAM-03"),
    ),
    Symptom(
        "sam",
        "how the relative positions of block {depth}, which attends globally, are resized for 640 px: linear, with "
        "half-pixel centres; at 1024 px they are not, and there it is right",
        lambda scene: scene.crops_alone and scene.depth in GLOBAL_BLOCKS,
        ("SAM-04", "SAM-05"),
    ),
    Symptom(
        "sam",
        "how SAM's position tables are resized for 640 px: the absolute ones bicubic with antialias, the relative ones "
        "linear with half-pixel centres; at 1024 px neither is resized, and there SAM is right",
        lambda scene: scene.crops_alone,
        ("SAM-01", "SAM-02", "SAM-03", "SAM-04", "SAM-05"),
    ),
    Symptom(
        "sam",
        "SAM's neck by a little, for its blocks are right: rounding in its convolutions (TF32, autocast, another "
        "dtype), and its norms' variance (over the number of channels, not one less) and epsilons (1e-6)",
        lambda scene: scene.blocks_right and scene.small,
    ),
    Symptom(
        "sam",
        "SAM behind its last block: the neck's norms (over channels, not places), its weights, and the two "
        "convolutions (padded by one on each side, nothing between them)",
        lambda scene: scene.blocks_right,
        ("SAM-12", "SAM-14"),
    ),
    Symptom(
        "sam",
        "SAM by a little, from its start on: epsilons (1e-6), GELU (erf), the patches' weights (red, green, blue), "
        "absolute positions, the biases of patches, queries, keys and values, relative positions (of the unscaled "
        "query, rows and columns not exchanged), the bias's dtype and the attention kernel that adds it, windows "
        "(padded behind the norm, on the right and below, with zeros that are attended to), rounding to another dtype "
        "than the decoder's, and autocast, under which norms give float32",
        lambda scene: scene.small,
        ("ATK-01", "ATK-03", "DTP-04", "DTP-07", "SAM-13", "SAM-15"),
    ),
    Symptom(
        "sam",
        "SAM's patches and its block 0: the patches' weights (rows and columns not exchanged), absolute positions, "
        "windows (padded behind only, with zeros that are attended to), queries, keys and values in this order and not "
        "head by head, relative positions (of the unscaled query, rows and columns not exchanged), the attention's "
        "scale (a head's), biases, and a residual of what stands in front of the norm",
        lambda scene: scene.depth == 0,
        ("SAM-08", "SAM-09"),
    ),
    Symptom(
        "sam",
        "SAM's block {depth}, for those in front are right: its weights and biases, which blocks attend globally (2, "
        "5, 8 and 11), their tables of relative positions, and the number of blocks",
        lambda scene: scene.depth is not None,
        ("SAM-11", "SAM-14"),
    ),
    Symptom(
        "sam",
        "SAM's relative positions (of the unscaled query, rows and columns not exchanged), its windows (padded with "
        "zeros that are attended to), which blocks attend globally (2, 5, 8 and 11), position tables that are resized "
        "for a page below 1024 px, its neck, and its weights",
        bugs=("SAM-08", "SAM-09", "SAM-11", "SAM-12", "SAM-14"),
    ),
    Symptom(
        "clip",
        "what of CLIP is not finite, where SAM's features are: float16's range in scores, norms and the quick GELU, "
        "and weights left as they were allocated",
        lambda scene: scene.has(Sign.NOT_FINITE),
    ),
    Symptom(
        "clip",
        "how CLIP's 16 x 16 positions are resized for a crop: bicubic with antialias, the class token's row, the first "
        "one, kept apart",
        lambda scene: scene.crops_alone,
        ("CLP-03", "CLP-04"),
    ),
    Symptom(
        "clip",
        "CLIP's end: no norm behind its last block, and the class token kept until the projector",
        lambda scene: scene.blocks_right,
    ),
    Symptom(
        "clip",
        "CLIP by a little, from its start on: the quick GELU (of 1.702 x), epsilons of 1e-5, biases, the class token "
        "(with a position of its own, and normed in front as patches are), rounding to another dtype, and autocast, "
        "under which norms give float32",
        lambda scene: scene.small,
        ("CLP-01", "CLP-02", "DTP-07"),
    ),
    Symptom(
        "clip",
        "CLIP's input and its block 0: SAM's features in the place of its own patches, positions, the norm in front, "
        "queries, keys and values in this order and not head by head, their biases and their output's, the attention's "
        "scale (a head's) and no causal mask in it",
        lambda scene: scene.depth == 0,
        ("CLP-05", "CLP-08"),
    ),
    Symptom(
        "clip",
        "CLIP's block {depth}, for those in front are right: its weights and biases, and the number of blocks",
        lambda scene: scene.depth is not None,
    ),
    Symptom(
        "clip",
        "CLIP: SAM's features in the place of its own patches, the quick GELU, epsilons of 1e-5, queries, keys and "
        "values in this order, no norm at the end",
        bugs=("CLP-01", "CLP-02", "CLP-05", "CLP-08"),
    ),
    Symptom(
        "projector",
        "what of the projector is not finite, where CLIP's and SAM's features are: float16's range in their sums, and "
        "weights left as they were allocated",
        lambda scene: scene.has(Sign.NOT_FINITE),
    ),
    Symptom(
        "projector",
        "that CLIP's features stand before SAM's, without the class token (the first, not the last), that SAM's map is "
        "read row by row, and the projector: one linear layer with a bias, no norm and no activation around it",
        bugs=("CLP-07", "PRJ-02"),
    ),
    Symptom(
        "vision_fusion",
        "what the fusion was never filled with: rows of the prompt's features that nothing was written to, the newline "
        "and the separator that are weights of the checkpoint",
        lambda scene: scene.has(Sign.NOT_FINITE),
    ),
    Symptom(
        "vision_fusion",
        "the number of newlines (one for each row of the whole mosaic, not of each crop) and the one separator",
        lambda scene: scene.misshapen,
        ("SCH-04", "SCH-05"),
    ),
    Symptom(
        "vision_fusion",
        "the order: the crops laid out as the page they were cut from, row of pixels by row, then the whole page, each "
        "row's newline behind it, the separator last",
        lambda scene: scene.has(Sign.SHUFFLED),
        ("FUS-01", "FUS-02", "FUS-04"),
    ),
    Symptom(
        "vision_fusion",
        "the order (crops laid out as the page, then the whole page, row by row, the separator last), that every crop "
        "stands there once, newlines behind their rows, that newline and separator are loaded weights and not "
        "exchanged, all in the features' dtype",
        bugs=("FUS-01", "FUS-02", "FUS-04", "FUS-06", "FUS-07"),
    ),
)
