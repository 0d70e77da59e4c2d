"""The decoder's share: one call on new positions after those in the cache, and the number of experts' weights read."""

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, attention, moved, product
from pytest_dsocr.layers.sizes import DecoderConfig

LAYERS = "model.layers"
EMBEDDING = "model.embed_tokens"
NORM = "model.norm"
HEAD = "lm_head"
KEYS_AND_VALUES = 2
MATRICES = 3
"""Matrices of a gated perceptron: gate, up, down."""
LOGIT_BYTES = ITEM_BYTES["float32"]


@dataclass(frozen=True)
class Way:
    """Ways in which correct implementations differ, with what each adds to the cost."""

    all_logits: bool = False
    """Return logits of every position of the prompt, though one is used."""
    angle_products: bool = False
    """Compute the angles of the rotary positions as a matrix product, in each layer again."""


ENGINE = Way()
VENDOR = Way(all_logits=True, angle_products=True)


def expected_experts(config: DecoderConfig, tokens: int) -> float:
    """Count the distinct experts that are expected in a call of ``tokens``, where each is as likely as any other."""
    missed = (1 - config.num_experts_per_tok / config.n_routed_experts) ** tokens
    return config.n_routed_experts * (1 - missed)


@dataclass(frozen=True)
class Call:
    """A call of the decoder on new positions."""

    positions: range
    """Indices of the new positions; the first equals the number of positions already in the cache."""
    size: int
    """Bytes of a number."""
    way: Way = ENGINE

    @property
    def tokens(self) -> int:
        """New tokens."""
        return len(self.positions)


def parameters(config: DecoderConfig) -> dict[str, int]:
    """Count the parameters of each module; a layer's routed experts together."""
    width, table = config.hidden_size, config.vocab_size * config.hidden_size
    found = {EMBEDDING: table}
    for layer in range(config.num_hidden_layers):
        name = f"{LAYERS}.{layer}"
        heads = 2 * config.num_attention_heads + 2 * config.num_key_value_heads
        found |= {f"{name}.input_layernorm": width, f"{name}.post_attention_layernorm": width}
        found[f"{name}.self_attn"] = width * heads * config.head_dim
        if config.is_moe(layer):
            found[f"{name}.mlp.gate"] = config.n_routed_experts * width
            found[f"{name}.mlp.experts"] = config.n_routed_experts * expert_parameters(config)
            found[f"{name}.mlp.shared_experts"] = config.n_shared_experts * expert_parameters(config)
        else:
            found[f"{name}.mlp"] = MATRICES * width * config.intermediate_size
    return found | {NORM: width, HEAD: table}


def expert_parameters(config: DecoderConfig) -> int:
    """Count the parameters of one expert."""
    return MATRICES * config.hidden_size * config.moe_intermediate_size


def cache_bytes(config: DecoderConfig, positions: int, size: int) -> int:
    """Return the bytes of the keys and values of ``positions`` positions, in numbers of ``size`` bytes."""
    return positions * config.num_hidden_layers * KEYS_AND_VALUES * config.num_key_value_heads * config.head_dim * size


def activations(config: DecoderConfig, tokens: int, held: int, size: int, *, is_eager: bool) -> int:
    """Return the peak bytes of activations in a call of ``tokens`` that attend to ``held`` positions.

    With few tokens, the weights of their experts may be copied together, as in a step on a GPU.
    """
    width, wide = config.hidden_size, LOGIT_BYTES
    chosen = tokens * config.num_experts_per_tok
    pairs = tokens * held * config.num_attention_heads * is_eager
    return tokens * (width * (4 * size + 3 * wide) + config.intermediate_size * size) + max(
        pairs * (2 * size + 2 * wide) + 8 * tokens * width * size,
        (MATRICES + 1) * tokens * config.intermediate_size * size,
        chosen * width * (3 * size + 2 * wide),
        chosen * expert_parameters(config) * size if chosen <= config.n_routed_experts else 0,
        config.vocab_size * (size + wide),
    )


def layers(config: DecoderConfig, call: Call) -> dict[str, Cost]:
    """Return the cost of one call."""
    weights = parameters(config)
    norm = moved(call.size, weights=config.hidden_size)
    # at least, the tokens that are looked up are one that comes again
    found = {EMBEDDING: moved(call.size, weights=config.hidden_size, written=call.tokens * config.hidden_size)}
    for layer in range(config.num_hidden_layers):
        name = f"{LAYERS}.{layer}"
        found[f"{name}.input_layernorm"] = norm
        found[f"{name}.self_attn"] = _attention(config, call) + moved(call.size, weights=weights[f"{name}.self_attn"])
        found[f"{name}.post_attention_layernorm"] = norm
        for part, cost in _mlp(config, call, layer):
            found[f"{name}.{part}"] = cost
    return {**found, NORM: norm, HEAD: _head(config, call)}


def _attention(config: DecoderConfig, call: Call) -> Cost:
    held = call.positions.start
    width, dim = config.hidden_size, config.head_dim
    queries, keys = config.num_attention_heads * dim, config.num_key_value_heads * dim
    angles = product(call.tokens, 1, dim // 2) if call.way.angle_products else Cost()
    return (
        angles
        + product(call.tokens, width, queries + KEYS_AND_VALUES * keys)
        + attention(call.tokens, held + call.tokens, queries)
        + product(call.tokens, queries, width)
        + _through(config, call)
        + moved(call.size, read=held * KEYS_AND_VALUES * keys, written=call.tokens * KEYS_AND_VALUES * keys)
    )


def _mlp(config: DecoderConfig, call: Call, layer: int) -> Iterator[tuple[str, Cost]]:
    """Yield the costs of a layer's experts; the routed ones count the numbers that all read and the one sum."""
    width, inner, tokens = config.hidden_size, config.moe_intermediate_size, call.tokens
    if not config.is_moe(layer):
        dense = _gated(tokens, width, config.intermediate_size) + _through(config, call)
        yield "mlp", dense + moved(call.size, weights=MATRICES * width * config.intermediate_size)
        return
    experts, chosen = config.n_routed_experts, config.num_experts_per_tok
    yield "mlp.gate", product(tokens, width, experts) + moved(call.size, weights=experts * width)
    reached = round(expected_experts(config, tokens) * expert_parameters(config))
    routed = _gated(tokens * chosen, width, inner) + _through(config, call)
    yield "mlp.experts", routed + moved(call.size, weights=reached)
    shared = _gated(tokens, width, inner * config.n_shared_experts)
    yield "mlp.shared_experts", shared + moved(call.size, weights=config.n_shared_experts * expert_parameters(config))


def _gated(rows: int, width: int, inner: int) -> Cost:
    return product(rows, width, MATRICES * inner)


def _through(config: DecoderConfig, call: Call) -> Cost:
    """Return a layer's input and its output."""
    numbers = call.tokens * config.hidden_size
    return moved(call.size, read=numbers, written=numbers)


def _head(config: DecoderConfig, call: Call) -> Cost:
    """Logits of the last position, or of all, in float32."""
    rows = call.tokens if call.way.all_logits else 1
    weights = config.vocab_size * config.hidden_size
    return (
        product(rows, config.hidden_size, config.vocab_size)
        + moved(call.size, weights=weights, read=rows * config.hidden_size)
        + moved(LOGIT_BYTES, written=rows * config.vocab_size)
    )
