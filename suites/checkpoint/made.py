"""A second checkpoint, small and awkward, with its pages: ``python -m suites.checkpoint.made FOLDER [MODEL]``.

Its weights have the same bytes on every machine. Most follow from a seed (see ``engine.synthetic``). Some are set to
make rare events happen on one page:

- The tables of positions are smaller than the view and must be enlarged, as the vendor's are in Large.
- There are more than ten experts, and their names sort otherwise than their numbers. The router has nearly equal rows
  for each pair of experts. Only scores in float32 show the right one of a pair.
- The output is a chain of tokens. Each token's embedding is large in a channel of its own, which only the next token's
  row of ``lm_head`` reads. These logits do not depend on the order of sums.
- At some steps two tokens have equal logits, and the lower id is right. At others they differ by more than float32
  rounds, and by less than float16 resolves. Pad is output in the middle, and EOS is second best early.
- The text has a space before a full stop, an entity and two empty lines in a row. A reader might normalise them.
- The prompt ends in the twenty letters that the chain begins with. The rule for n-grams counts the prompt, and forbids
  the last letter. The prompt is long: the output goes beyond 2,048 positions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_dsocr.layers.sizes import DecoderConfig, SamConfig
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.sizes import ClipConfig, DeepEncoder
from pytest_dsocr.models.deepseek_ocr2.sizes import DeepEncoder2, TowerConfig
from pytest_dsocr.models.spec import EncoderSizes, ModelSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

NAME = "awkward"
ENCODER = DeepEncoder.of(
    SamConfig(
        width=96,
        layers=3,
        heads=3,
        global_attn_indexes=(1,),
        image_size=320,
        neck_channels=40,
        downsample_channels=(56, 80),
    ),
    ClipConfig(width=80, layers=3, heads=5, image_size=70),
)
ENCODERS: Mapping[type[EncoderSizes], EncoderSizes] = {
    DeepEncoder: ENCODER,
    DeepEncoder2: DeepEncoder2.of(
        ENCODER.sam, TowerConfig(dim=80, layers=3, heads=10, key_value_heads=2, intermediate_size=112)
    ),
}
"""Sizes by the form of a model's ``vision_config``."""
DECODER = DecoderConfig(
    vocab_size=2017,
    hidden_size=160,
    intermediate_size=224,
    num_hidden_layers=3,
    num_attention_heads=5,
    num_key_value_heads=5,
    n_routed_experts=12,
    num_experts_per_tok=3,
    moe_intermediate_size=72,
    max_position_embeddings=8192,
)
SEED = 3
PAGES = {
    "tiny": {"float32": "exactly_640", "bfloat16": "halves"},
    "base": {"float32": "exactly_640", "bfloat16": "square_halves"},
    "small": {"float32": "exactly_640", "bfloat16": "halves"},
}
"""Drawn pages by preset and dtype. The pixels of the bfloat16 page sum to zero: without vision, every decoder gets the
same bits."""
LETTERS = "abcdefghijklmnopqrst"
PROMPT = f"<image>\n{' '.join(map(str, range(971)))} {' '.join(LETTERS)}"
CEILING = 48
"""Limit of new tokens, longer than the chain."""


class Link(NamedTuple):
    """Token of the chain, with its competitors."""

    says: str
    equal: str = ""
    """Token with an equal logit and a higher id, which must not be chosen."""
    nearly: str = ""
    """Token with a slightly lower logit and a lower id, chosen if rounding makes both logits equal."""
    second: str = ""
    """Token with a logit lower by a quarter."""


EOS, PAD = "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
CHAIN = (
    *(Link(f" {letter}") for letter in LETTERS[:-1]),
    Link(" t", second=" u"),
    Link(PAD, equal=" v"),
    Link(" w", second=EOS),
    Link(" x", equal=" y"),
    Link(" zebra", nearly="Zebra"),
    Link(" yellow", nearly="Yellow"),
    Link(" wonder", nearly="Wonder"),
    Link(" winter", nearly="Winter"),
    Link(" water", equal=" weather"),
    *map(Link, (" .", "&amp;", "\n\n", "\n", "©")),
    Link(EOS),
)
FORBIDDEN = " t"
"""Token that would repeat the prompt: the second best one continues the chain, or is the best one for a model without a
rule for n-grams."""

LOUD, COMMON = 24.0, 6.0
"""Value of a token's own channel in its embedding, and of the last channel, which is equal for all tokens."""
APART, EXPERTS_APART = 2.0**-13, 2.0**-12
"""Weights of the last channel that separate nearly equal tokens, and the experts of a pair."""
WORSE = 0.75
SMALL = 2.0**-5
STREAMS = re.compile(
    r"patch_embed|pos_embed|neck\.[02]|net_3|attn\.proj|lin2|_embedding|pre_layrnorm|out_proj|fc2"
    r"|embed_tokens|projector|image_newline|view_seperator|o_proj|down_proj|query_"
)
"""Weights before a residual sum or a norm, scaled by ``SMALL`` to make the norms' epsilons matter."""
FIRST_ATTENTION = "model.layers.0.self_attn.o_proj.weight"
"""Weights set to zero: in bfloat16 the first layer then shows the rounding of norms without that of attention."""


def architecture(family: ModelSpec) -> Architecture:
    """Return the checkpoint's architecture for ``family``."""
    return Architecture(family, ENCODERS[family.encoder], DECODER)


def write_awkward(folder: Path, family: ModelSpec) -> Path:
    """Write the checkpoint for ``family`` into a new ``folder``, and return the folder."""
    import torch
    from tokenizers import Tokenizer

    from pytest_dsocr.engine.checkpoint import device_named, resolve
    from pytest_dsocr.engine.model import model_class
    from pytest_dsocr.engine.places import MINI
    from pytest_dsocr.engine.portable import write_checkpoint
    from pytest_dsocr.engine.synthetic import fill
    from pytest_dsocr.layers.attention import attention_function

    mini = resolve(MINI).folder
    assert mini is not None
    vocabulary = Tokenizer.from_file(str(mini / "tokenizer.json"))
    arch = architecture(family)
    model = model_class(arch).empty(arch, attention_function("eager"), device_named("cpu"), torch.bfloat16)
    fill(model, SEED)
    state = dict(model.state_dict())
    has_rule = family.decoding.no_repeat_ngram_size > 0
    _chain(state["model.embed_tokens.weight"], state["lm_head.weight"], vocabulary, 1.0 if has_rule else WORSE / 2)
    state["model.projector.layers.bias"][-1] = COMMON
    _pair_experts(state)
    for name, weights in state.items():
        weights *= SMALL if STREAMS.search(name) else 1.0
    state[FIRST_ATTENTION].zero_()
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder, arch, state, vocabulary)
    return folder


def _chain(embeddings: Tensor, head: Tensor, vocabulary: Tokenizer, forbidden: float) -> None:
    """Set the weights ``[V, C]`` that chain the tokens; ``forbidden`` is the weight of :data:`FORBIDDEN`."""

    def ids(text: str) -> list[int]:
        found: list[int] = vocabulary.encode(text, add_special_tokens=False).ids
        return found

    embeddings[:, -1] = COMMON
    head[[token for link in CHAIN for text in link for token in ids(text)]] = 0.0
    links = [(token, link) for link in CHAIN for token in ids(link.says)]
    before = ids(FORBIDDEN)
    for channel, (token, link) in enumerate(links):
        embeddings[before, channel] = LOUD
        head[[token, *ids(link.equal), *ids(link.nearly)], channel] = forbidden if link.says == FORBIDDEN else 1.0
        head[token, -1] = APART if link.nearly else 0.0
        head[ids(link.second), channel] = WORSE
        before = ids(link.second) if link.says == FORBIDDEN else [token, *ids(link.equal), *ids(link.nearly)]


def _pair_experts(state: MutableMapping[str, Tensor]) -> None:
    for name, router in state.items():
        if name.endswith("mlp.gate.weight"):
            router[0::2, -1] = 0.0
            router[1::2] = router[0::2]
            router[1::2, -1] = EXPERTS_APART


if __name__ == "__main__":
    from suites.contract.pages import write_page

    target, model = Path(sys.argv[1]), sys.argv[2:]
    write_awkward(target / "-".join([*model, NAME]), MODELS[model[0]] if model else DEEPSEEK_OCR)
    for page in {page for pages in PAGES.values() for page in pages.values()}:
        write_page(page, target)
