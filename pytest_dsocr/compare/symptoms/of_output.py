"""What real ports got wrong between tokens and files, and in loops of their own."""

from __future__ import annotations

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.symptoms.scene import Symptom

OUTPUT = (
    Symptom(
        "read",
        "read's own prefill: the classic is a second one without the image's features; or the cache of the page before",
        lambda scene: scene.has(Sign.UNRELATED, "text"),
        ("KVC-03", "KVC-04", "SCT-04"),
    ),
    Symptom(
        "read",
        "the end of what read gives back: that its loop ends at EOS, and that EOS is taken off the text",
        lambda scene: scene.has(Sign.GOES_ON, "text"),
    ),
    Symptom(
        "read",
        "read's own loop: that each step's own logits are used, and that the rule for n-grams holds in it, also in "
        "greedy decoding",
        lambda scene: scene.has(Sign.REPETITION, "text"),
        ("DEC-01", "DTP-05", "NGR-01", "NGR-02"),
    ),
    Symptom(
        "read",
        "read's own loop: that the token chosen after prefill is kept as well as fed",
        lambda scene: scene.has(Sign.LOST_START, "text"),
        ("DEC-02",),
    ),
    Symptom(
        "read",
        "where read's own loop ends: at EOS alone, at no string that a page may hold too, and at a ceiling that counts "
        "new tokens and not the prompt's; where it says something else before, the rule for n-grams (of 20 tokens)",
        lambda scene: scene.has(Sign.TRUNCATION, "text"),
        ("EOS-04", "POS-10"),
    ),
    Symptom(
        "read",
        "what read gives back: the text itself, and not what was printed on the way; where there is none, that it "
        "prefills with the image's features",
        lambda scene: scene.has(Sign.EMPTINESS, "text"),
        ("EOS-05",),
    ),
    Symptom(
        "read",
        "that read goes through the same prefill, with the image's features, and the same steps, with the best token "
        "that the rule for n-grams leaves and no draw or penalty in its place, and gives the same twice",
        bugs=("ATK-05", "DEC-04"),
    ),
    Symptom(
        "text",
        "that special tokens are kept in the text: its markup is made of them",
        lambda scene: scene.has(Sign.MARKUP),
        ("DTK-03",),
    ),
    Symptom(
        "text",
        "that bytes are turned into characters: by the fast tokenizer, whose pieces are bytes",
        lambda scene: scene.has(Sign.BYTE_MARKS),
        ("DTK-02",),
    ),
    Symptom(
        "text",
        "that all tokens are decoded together, for a character may be made of two",
        lambda scene: scene.has(Sign.BROKEN_CHARACTERS),
        ("DTK-01",),
    ),
    Symptom(
        "text",
        "that spaces are not tidied, and only those around the whole text are stripped",
        lambda scene: scene.has(Sign.SPACES),
        ("DTK-05",),
    ),
    Symptom(
        "text",
        "that coordinates are left as the model writes them, in 1/999 of the page, and not scaled in the text, where "
        "all boxes are off in proportion; where most are near, vision: position tables of crops, GELU, filters (offer "
        "inputs and stages, levels L1 and L2, to have the first that breaks named)",
        lambda scene: scene.has(Sign.NUMBERS),
        ("RND-01", "RND-02"),
    ),
    Symptom(
        "text",
        "the end of the text: that decoding ends at EOS, and that EOS is taken off",
        lambda scene: scene.has(Sign.GOES_ON),
    ),
    Symptom("text", "how tokens become text, for the tokens are right", lambda scene: scene.right("tokens")),
    Symptom(
        "text",
        "the prompt: BOS in front, the image's tokens before the text, the model card's words; and that the text is "
        "what is returned",
        lambda scene: scene.has(Sign.EMPTINESS),
        ("EOS-05", "PRM-01", "PRM-02"),
    ),
    Symptom(
        "text",
        "that the page is seen at all: its features at the image's tokens in prefill, the image in front of the "
        "prompt's text, no other page's cache; offer inputs and stages (levels L1 and L2) to have the first that "
        "breaks named",
        lambda scene: scene.has(Sign.UNRELATED),
        ("KVC-03", "KVC-04", "PRM-01", "SCH-10", "SCT-04"),
    ),
    Symptom(
        "text",
        "the rule for n-grams (none of 20 tokens twice in prompt and output together, also in greedy decoding), that "
        "each step's own logits are used, and, where it holds, vision: filters, position tables, the quick GELU",
        lambda scene: scene.has(Sign.REPETITION),
        ("CLP-01", "DEC-01", "DTP-05", "IMG-01", "IMG-05", "NGR-01", "NGR-02", "NGR-07"),
    ),
    Symptom(
        "text",
        "that the token chosen after prefill is kept as well as fed",
        lambda scene: scene.has(Sign.LOST_START),
        ("DEC-02",),
    ),
    Symptom(
        "text",
        "where decoding ends: at EOS alone, at no string that a page may hold too, and at a ceiling that counts new "
        "tokens and not the prompt's",
        lambda scene: scene.has(Sign.TRUNCATION),
        ("EOS-04", "POS-10"),
    ),
    Symptom("text", "that what is returned begins behind the prompt", lambda scene: scene.has(Sign.ECHO)),
    Symptom(
        "text",
        "whatever comes in front of the text, of which nothing is known: offer inputs and stages (levels L1 and L2) to "
        "have the first that breaks named",
    ),
    Symptom("spans", "how spans are found: non-greedy, across line breaks", bugs=("PAR-02",)),
    Symptom("boxes", "how coordinates are read: of 999, truncated, every box of a span", bugs=("PAR-03",)),
    Symptom(
        "result.mmd",
        "what is taken out of the text and what is kept (paragraphs without a label too, no blanks around the whole), "
        "LaTeX that is rewritten (with one backslash, and only beside a span that is no figure), and figures' links, "
        "numbered by span, where all equal spans get the first one's",
        bugs=("PAR-05", "PAR-06", "PAR-07", "PAR-08", "PAR-09"),
    ),
    Symptom(
        "artefacts",
        "which files are written; the figures, one for every box of their spans, cut from the upright page before "
        "boxes are drawn on it, in pixels of which 999 is the last, truncated, of coordinates with their signs and "
        "points that are not kept inside the page, and numbered by box, counting those that cannot be cut",
        bugs=("PAR-05", "PAR-12", "RND-02", "RND-04", "RND-06", "RND-08"),
    ),
)
