"""Mistakes in the decoder's layers, its positions, its norms and its head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import attention
from pytest_dsocr.engine.decoder import Attention, Layer, LmHead, RmsNorm, Rope
from pytest_dsocr.engine.model import Core, DeepseekOCR
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.of_sam import GARBAGE, LITTLE
from tests.faults.registry import core_of, fault, model_of, run_instead

RELATIVE = "rotary scores depend on the difference of two positions alone, and keys are no seam"


def _frequencies(patch: pytest.MonkeyPatch, subject: SessionSubject, change: Any) -> None:
    core = core_of(subject)
    patch.setattr(core.inv_freq, "data", change(core.inv_freq))


@fault("POS-01", "Interleaved rotary pairs", "prefill", "garbage after a few tokens", "rotary halves")
def interleaved(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Neighbouring channels are paired, as in the MLA attention that the config does not use."""

    def rotate(self: Rope, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        cos, sin = (t[..., :half].repeat_interleave(2, dim=-1) for t in (self.cos, self.sin))
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
        return x * cos + turned * sin

    patch.setattr(Rope, "rotate", rotate)


@fault("POS-09", "Theta of a million", "prefill", GARBAGE, "theta")
def other_theta(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The config leaves rope_theta out, and the port's default is another model's."""
    _frequencies(patch, subject, lambda f: f**1.5)


@fault("POS-04", "Rotary frequencies never filled", "prefill", GARBAGE, "rotary|frequencies")
def zero_frequencies(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """They are in no checkpoint and were allocated on the meta device: here they are zeros."""
    _frequencies(patch, subject, torch.zeros_like)


@fault("POS-W1", "Positions from 1", "prefill", "nothing", "position", equivalent=RELATIVE)
def from_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Positions are counted from 1, in prefill and in decode alike."""
    right = Rope.__init__

    def init(self: Rope, inverse: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        right(self, inverse, positions + 1, dtype)
        self.positions = positions

    patch.setattr(Rope, "__init__", init)


@fault("POS-W2", "Keys not rotated", "prefill", GARBAGE, "rotary")
def keys_not_rotated(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Only the queries are rotated: the result of the keys is thrown away."""

    def forward(self: Attention, x: Tensor, rope: Rope, cache: Any) -> Tensor:
        q, k, v = rope.rotate(self._heads(self.q_proj(x))), self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        keys, values = cache.append(self.layer, k, v, rope.positions)
        given: Tensor = self.o_proj(self.attend(q, keys, values, None).transpose(1, 2).flatten(2))
        return given

    patch.setattr(Attention, "forward", forward)


@fault("POS-W3", "Rotation in the opposite sense", "prefill", GARBAGE, "rotary")
def opposite_rotation(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The sign of the sine is exchanged."""
    right = Rope.__init__

    def init(self: Rope, inverse: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        right(self, inverse, positions, dtype)
        self.sin = -self.sin

    patch.setattr(Rope, "__init__", init)


@fault("POS-W4", "Angles in bfloat16", "prefill", LITTLE, "rotary|round", "a page of many tokens")
def rounded_angles(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Positions above 256 are rounded, for the angles are computed in the weights' dtype."""
    right = Rope.__init__

    def init(self: Rope, inverse: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        right(self, inverse, positions.bfloat16().float(), dtype)
        self.positions = positions

    patch.setattr(Rope, "__init__", init)


@fault("POS-W5", "Positions that start again behind the image", "prefill", LITTLE, "position")
def positions_start_again(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """All of an image's tokens have one position, as in models with positions of two dimensions."""
    right = Rope.__init__

    def init(self: Rope, inverse: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        right(self, inverse, positions.clamp(max=1) + (positions - 200).clamp(min=0), dtype)
        self.positions = positions

    patch.setattr(Rope, "__init__", init)


@fault("POS-08", "Image tokens that see each other", "prefill", LITTLE, "causal")
def bidirectional(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The mask of the prompt is not causal, as in other vision-language models."""
    patch.setattr(attention, "_visible", lambda q, k, lengths: None)


@fault("ATD-W1", "A token that does not see itself", "prefill", GARBAGE, "mask")
def strictly_causal(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The mask is off by one."""

    def visible(q: Tensor, k: Tensor, lengths: Any) -> Tensor | None:
        at = torch.arange(k.shape[2])
        first = at[k.shape[2] - q.shape[2] :, None]
        return ((at < first) | ((at == 0) & (first == 0)))[None, None]

    patch.setattr(attention, "_visible", visible)


@fault("ATD-W2", "Attention scaled by the whole width", "prefill", GARBAGE, "scale")
def scaled_by_width(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The scale is hidden_size ** -0.5 in place of head_dim ** -0.5."""
    for layer in model_of(subject).model.decoder_layers():
        weight = layer.self_attn.q_proj.weight
        patch.setattr(weight, "data", weight.data * (layer.self_attn.head_dim / weight.shape[0]) ** 0.5)


@fault("ATD-W3", "A sliding window of 128 in prefill", "prefill", LITTLE, "window|slide")
def sliding(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The attention of another model of the same family was chosen."""
    right = attention._visible

    def visible(q: Tensor, k: Tensor, lengths: Any) -> Tensor | None:
        seen = right(q, k, lengths)
        at = torch.arange(k.shape[2])
        near = (at[k.shape[2] - q.shape[2] :, None] - at < 128)[None, None]
        return near if seen is None else seen & near

    patch.setattr(attention, "_visible", visible)


@fault("ATD-W4", "The softmax in bfloat16", "prefill", LITTLE, "softmax|round|autocast")
def rounded_softmax(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """It is computed in the weights' dtype and not in float32."""
    right = attention.eager
    for layer in core_of(subject).decoder_layers():
        patch.setattr(
            layer.self_attn, "attend", lambda q, k, v, n: right(q.bfloat16(), k.bfloat16(), v.bfloat16(), n).float()
        )


@fault("NRM-W1", "Epsilon of 1e-5", "prefill", "nothing, or a near tie that goes the other way", "epsilon")
def other_epsilon(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The config leaves rms_norm_eps out, and the port's default is another."""
    for layer in core_of(subject).decoder_layers():
        patch.setattr(layer.input_layernorm, "eps", 1e-5)
        patch.setattr(layer.post_attention_layernorm, "eps", 1e-5)


@fault("NRM-W2", "A norm that takes the mean off", "prefill", GARBAGE, "norm")
def layer_norm(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A layer norm is used for the root mean square."""
    patch.setattr(RmsNorm, "forward", lambda self, x: F.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight)


@fault("NRM-W3", "A norm's weights with one added", "prefill", GARBAGE, "norm")
def plus_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Another model stores its norms' weights less one."""
    right = RmsNorm.forward
    patch.setattr(RmsNorm, "forward", lambda self, x: right(self, x) * (1 + self.weight) / self.weight)


@fault("NRM-W4", "No norm behind the last layer", "prefill", GARBAGE, "last norm")
def no_last_norm(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """It was taken to be in the head."""
    run_instead(patch, core_of(subject).norm, lambda x: x)


@fault("HED-W1", "The logits of the token before the last", "prefill", GARBAGE, "last position's logits")
def token_before(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The last position is taken for one of padding."""

    def decode(self: DeepseekOCR, embeds: Tensor, cache: Any, *, all_logits: bool = False) -> Tensor:
        hidden = self.model.decode(embeds, cache)
        given: Tensor = self.lm_head(hidden[:, -2:][:, :1])
        return given

    patch.setattr(DeepseekOCR, "decode", decode)


@fault("HED-W2", "The head's weights tied to the embedding", "prefill", GARBAGE, "the head")
def tied(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """tie_word_embeddings is another library's default."""
    patch.setattr(model_of(subject).lm_head.weight, "data", core_of(subject).embed_tokens.weight.data)


@fault("DEC-06", "Logits rounded to bfloat16", "prefill", "a near tie that goes the other way", "head|round|dtype")
def rounded_logits(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The choice is made before the logits are cast to float32."""
    right = LmHead.forward
    patch.setattr(LmHead, "forward", lambda self, x: right(self, x).bfloat16().float())


@fault("HED-W3", "Logits capped softly", "prefill", "nothing", "head|cap")
def capped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """30 * tanh(x / 30), as another model does."""
    right = LmHead.forward
    patch.setattr(LmHead, "forward", lambda self, x: 30 * torch.tanh(right(self, x) / 30))


@fault("LAY-W1", "The last layer left out", "prefill", GARBAGE, "layer")
def last_layer_left_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The loop ends one layer early; the cache of the last is filled all the same."""
    last = core_of(subject).decoder_layers()[-1]
    right = last.self_attn.forward

    def forward(x: Tensor, rope: Rope, cache: Any) -> Tensor:
        right(x, rope, cache)
        return x

    run_instead(patch, last, forward)


@fault("LAY-W2", "Two layers exchanged", "prefill", GARBAGE, "layer")
def exchanged_layers(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Names are sorted as text, where 10 stands in front of 2."""
    layers = core_of(subject).decoder_layers()
    for one, other in zip(layers[1].parameters(), list(layers[2].parameters()), strict=True):
        first, second = one.data, other.data
        patch.setattr(one, "data", second)
        patch.setattr(other, "data", first)


@fault("LAY-W3", "The output of attention not projected as it is stored", "prefill", GARBAGE, "weights")
def transposed_projection(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A square matrix is stored the other way round by another framework."""
    weight = core_of(subject).decoder_layers()[0].self_attn.o_proj.weight
    patch.setattr(weight, "data", weight.data.T.contiguous())


@fault("LAY-W4", "Embeddings scaled", "prefill", GARBAGE, "given")
def scaled_embeddings(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Embeddings of words are multiplied by the root of the width, as another model does."""
    right = DeepseekOCR.embed
    patch.setattr(DeepseekOCR, "embed", lambda self, ids: right(self, ids) * self.image_newline.shape[0] ** 0.5)


@fault("LAY-W5", "The residual stream in bfloat16", "prefill", LITTLE, "round|autocast|dtype")
def rounded_layers(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Every layer's output is rounded."""
    right = Layer.forward
    patch.setattr(Layer, "forward", lambda self, x, rope, cache: right(self, x, rope, cache).bfloat16().float())


@fault("HED-W4", "A token fed to the decoder with its embedding normed", "prefill", GARBAGE, "given")
def normed_embeddings(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A norm stands in front of the first layer in other models."""
    right = Core.decode
    patch.setattr(Core, "decode", lambda self, x, cache: right(self, F.rms_norm(x, x.shape[-1:]), cache))
