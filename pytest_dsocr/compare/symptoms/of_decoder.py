"""What real ports got wrong in the decoder, its cache and the choice of tokens."""

from __future__ import annotations

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.symptoms.scene import Symptom

DECODER = (
    Symptom(
        "prefill",
        "what was never filled: rotary frequencies that are in no checkpoint, and weights left as they were allocated; "
        "or float16, in which all above 65,504 is infinite",
        lambda scene: scene.has(Sign.NOT_FINITE),
        ("POS-04",),
    ),
    Symptom(
        "prefill",
        "what layer {depth} does with later tokens, for the first are right: positions (one by one, through the image "
        "too, not rounded to the weights' dtype), no window in the prompt's attention, experts without a capacity, and "
        "features at the mask's places",
        lambda scene: scene.depth is not None and scene.has(Sign.LATER_ROWS),
        ("POS-08", "SCT-03"),
    ),
    Symptom(
        "prefill",
        "what the decoder is given, and its layer 0: features at the mask's places in order, as many as places, not "
        "the image token's embedding, neither scaled nor normed; rotary halves, theta 10,000 at any length, positions "
        "one by one; a causal mask for image tokens too, and for a prompt that goes in parts; the attention's scale (a "
        "head's); the norms' form, weights and epsilons (1e-6); a dense layer, gate and up in this order, with silu; "
        "and rounding, to another dtype than the weights'",
        lambda scene: scene.depth == 0,
        ("MOE-03", "POS-01", "POS-08", "POS-09", "SCH-10", "SCT-03", "SCT-04"),
    ),
    Symptom(
        "prefill",
        "the decoder's layer {depth}, for those in front are right: the experts (6 of 64, their weights the softmax's "
        "own and not made to sum to one, each with its own, scaled by 1), the shared experts added as a whole, its "
        "weights (rounded to 8 bits, where it is by a little), its place among the layers, and its own keys and values "
        "in the cache",
        lambda scene: scene.depth is not None,
        ("MOE-01", "MOE-02"),
    ),
    Symptom(
        "prefill",
        "the decoder behind its last layer: the last norm, the head, and that the last position's logits are taken, "
        "those of this page and not of a cache that is not reset",
        lambda scene: scene.blocks_right,
        ("ATK-02", "KVC-04"),
    ),
    Symptom(
        "prefill",
        "the decoder by a little: experts' weights not made to sum to one, epsilons (1e-6), rotary frequencies rounded "
        "as the weights are, autocast; between two dtypes, rounding that chose another expert",
        lambda scene: scene.small,
        ("ATK-02", "DTP-07", "DTP-08", "MOE-02", "POS-09"),
    ),
    Symptom(
        "prefill",
        "the decoder, for vision is right: features put at the mask's places in order, the rotary halves, experts' "
        "weights not made to sum to one, shared experts added, a dense first layer, and that the prompt is prefilled "
        "with its image features, not with the image token's embedding or another page's cache",
        lambda scene: scene.right("vision_fusion"),
        ("KVC-03", "KVC-04", "MOE-01", "MOE-02", "MOE-03", "POS-01", "POS-08", "SCH-10", "SCT-03", "SCT-04"),
    ),
    Symptom(
        "prefill",
        "whatever comes in front of the logits: offer vision's seams to have the stage named; the classic is a prompt "
        "that is prefilled with the image token's embedding, not with its image features",
    ),
    Symptom("prefill_best", "the language model's head, for the logits after the prompt are right"),
    Symptom(
        "logits",
        "what a step reads that was never filled, for prefill is finite: the cache behind its end, a row of the mask "
        "that forbids every position; or float16, in which all above 65,504 is infinite",
        lambda scene: scene.has(Sign.NOT_FINITE),
    ),
    Symptom(
        "logits",
        "that each step's own logits are used, and not those of prefill again",
        lambda scene: scene.has(Sign.STANDS_STILL),
        ("DEC-01",),
    ),
    Symptom(
        "logits",
        "the first choice's logits, where prefill's are right: that they are the last position's, as prefill gives "
        "them",
        lambda scene: scene.has(Sign.FROM_PREFILL),
    ),
    Symptom(
        "logits",
        "the steps by a little from the first on, for prefill is right: the dtype that keys and values are cached in "
        "(rounded to bfloat16 or 8 bits), rounding in a kernel that only steps use, or one position of the cache too "
        "few (a step's own token's, too) or too many",
        lambda scene: scene.has(Sign.FROM_FIRST_STEP) and scene.small,
        ("KVC-06",),
    ),
    Symptom(
        "logits",
        "the first decode step, for prefill is right: its position goes on after the prompt and not after its padding, "
        "the cache holds all of the prompt, none of its padding, and does not slide, the last token is fed once, and "
        "no image features with it; and what is computed otherwise for one token, such as gate and up in another order",
        lambda scene: scene.has(Sign.FROM_FIRST_STEP),
        ("ENV-05", "KVC-06"),
    ),
    Symptom(
        "logits",
        "the cache, for the first steps are right: that it holds every position and does not slide, grows by one a "
        "step, that positions go on with it, and that each step is fed the token chosen last; between two dtypes, "
        "rounding that chose another expert",
        bugs=("KVC-05", "KVC-06"),
    ),
    Symptom(
        "tokens",
        "the rule for n-grams, for the logits are right: none of 20 tokens twice in prompt and output together, also "
        "in greedy decoding, without a window",
        lambda scene: scene.has(Sign.SAID_FORBIDDEN),
        ("NGR-01", "NGR-02", "NGR-06", "NGR-07"),
    ),
    Symptom(
        "tokens",
        "what keeps it from its best token, for the logits are right: a draw (the vendor's is greedy), or a rule for "
        "n-grams that forbids too early",
        lambda scene: scene.has(Sign.NOT_ITS_BEST),
        ("DEC-04", "NGR-06"),
    ),
    Symptom(
        "tokens",
        "where decoding ends, for every token is right: at EOS, id 1 in the vendor's vocabulary, and at no other token",
        lambda scene: scene.has(Sign.NO_END),
        ("EOS-04",),
    ),
    Symptom(
        "tokens",
        "the choice, for the logits are right: greedy, no n-gram of 20 of prompt and output twice, the end at EOS",
    ),
)
