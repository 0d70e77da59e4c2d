"""Forty subjects, one a factory: ``--subject=exam5:w01``. Only instances are changed.

Each exists at lower levels too, whatever ``--level`` says: ``w01_L0`` offers ``read`` alone, ``w01_L1`` ``read`` and
``inputs``. ``control`` is the engine.
"""

import html
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.image import GREY, SINGLE, files_of, global_view, load_image
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output, parse
from pytest_dsocr.contract.presets import crop_count, get_preset, image_token_count
from pytest_dsocr.contract.prompt import IMAGE, render
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.layers.attention import eager, repeat_heads
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sam import join_windows, split_windows
from pytest_dsocr.subjects.engine import EngineStages, EngineSubject, engine_subject

# ---- shared ---------------------------------------------------------------------------------------------------------


def subject_of(setup, kind=EngineSubject):
    return kind(engine_subject(setup).engine)


def levels(image):
    """RGB image to float32 ``[3, H, W]``, 0 to 255."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().contiguous()


def usual_pixels(image):
    return levels(image).div_(255).sub_(0.5).div_(0.5).bfloat16()


def boxes_of(grid, px):
    columns, rows = grid
    return [(c * px, r * px, (c + 1) * px, (r + 1) * px) for r in range(rows) for c in range(columns)]


def usual_cut(page, grid, px):
    large = page.resize((grid[0] * px, grid[1] * px))
    return [large.crop(box) for box in boxes_of(grid, px)]


def fitted(page, side):
    """Return the size in which a page fits a square view."""
    width, height = page.size
    if width > height:
        return side, round(height / width * side)
    return round(width / height * side), side


def placed(page, preset, colour=GREY, at=0.5):
    side = preset.view_size
    if preset.is_squashed:
        return page.resize((side, side))
    size = fitted(page, side)
    view = Image.new("RGB", (side, side), colour)
    view.paste(page.resize(size), tuple(round((side - one) * at) for one in size))
    return view


def usual_ids(tokenizer, prompt, counts, encode=None):
    encode = encode or tokenizer.encode
    texts = [encode(piece) for piece in prompt.split(IMAGE)]
    ids, mask = [tokenizer.special.bos, *texts[0]], [False] * (1 + len(texts[0]))
    for count, text in zip(counts, texts[1:]):
        ids += [tokenizer.special.image] * count + text
        mask += [True] * count + [False] * len(text)
    return ids, mask


def with_inputs(
    subject,
    *,
    load=load_image,
    cut=usual_cut,
    whole=global_view,
    pixels=usual_pixels,
    template=render,
    ids_of=usual_ids,
):
    """Give the subject's engine its own preparation of inputs, with some steps replaced."""
    engine = subject.engine

    def prepare(image, *, prompt="markdown", preset="gundam"):
        family = engine.family
        preset, text = get_preset(preset, family.presets), family.prompts.get(prompt, prompt)
        found = files_of(image) if isinstance(image, SINGLE) else image
        sources = [found] if isinstance(found, SINGLE) else found
        with engine.stages("preprocess"):
            pages = [load(one) for one in sources]
            grids = [preset.grid(*page.size) for page in pages]
            px = preset.tiling.crop_px
            crops = [pixels(tile) for page, grid in zip(pages, grids) if crop_count(grid) for tile in cut(page, grid, px)]
            wholes = [pixels(whole(page, preset)) for page in pages]
            base, small = preset.base_size, preset.image_size
            images_crop = torch.stack(crops) if crops else torch.zeros(1, 3, base, base)
            images_ori = torch.stack(wholes) if wholes else torch.zeros(1, 3, small, small)
        with engine.stages("tokenizer"):
            counts = [image_token_count(preset, grid) for grid in grids]
            ids, mask = ids_of(engine.tokenizer, template(text), counts)
            made = Inputs(
                torch.tensor([ids]), torch.tensor([mask]), torch.tensor(grids or [(0, 0)]), images_crop, images_ori
            )
            return made.to(engine.model.device)

    engine.prepare = prepare
    return subject


class OwnText(EngineStages):
    """Reads by itself: it does not promise that ``read`` follows from ``step``."""

    dtypes = ("bfloat16",)

    def inputs(self, page, *, prompt, preset):
        return self.engine.prepare(page, prompt=prompt, preset=preset).tensors

    def write(self, text, page, folder):
        write_artifacts(text, page, folder, self.engine.family.form)

    def read(self, page, *, prompt, preset, max_new_tokens):
        return self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens).text

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        return [self.read(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens) for page in pages]


class Decoded(EngineSubject):
    """Decodes tokens in its own way, in ``read`` as in ``text_of``."""

    def finish(self, token_ids):
        return self.engine.tokenizer.decode(token_ids)

    def text_of(self, token_ids):
        return self.finish([one for one in token_ids if one != self.engine.policy.eos_id])

    def text(self, result):
        return clean_output(self.text_of(result.token_ids))

    def read(self, page, *, prompt, preset, max_new_tokens):
        return self.text(self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens))

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        results = self.engine.run_batch(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return [self.text(result) for result in results]


def sam_of(subject):
    return subject.engine.model.model.sam_model


def clip_of(subject):
    return subject.engine.model.model.vision_model


def decoder_of(subject):
    return subject.engine.model.model.decoder_layers()


def experts_of(subject):
    return [layer.mlp for layer in decoder_of(subject) if hasattr(layer.mlp, "experts")]


def with_attention(subject, attend):
    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


def with_steps(subject, one_row):
    """Let each row of a decode step attend by ``one_row(q, k, v)``; prefill stays."""

    def attend(q, k, v, lengths):
        if q.shape[2] > 1 or k.shape[2] == 1:
            return eager(q, k, v, lengths)
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        own = lengths or [k.shape[2]] * len(q)
        return torch.cat([one_row(q[i : i + 1], k[i : i + 1, :, :n], v[i : i + 1, :, :n]) for i, n in enumerate(own)])

    return with_attention(subject, attend)


def with_rope(subject, kind):
    core = subject.engine.model.model

    def decode(x, cache):
        new = x.shape[1]
        rope = kind(core.inv_freq, cache.positions(new, x.device), x.dtype)
        for layer in core.layers:
            x = layer(x, rope, cache)
        cache.advance(new)
        return core.norm(x)

    core.decode = decode
    return subject


def with_fusion(subject, arrange):
    """Let the subject arrange features by ``arrange(crops, page, grid, newline, separator)``."""
    pipeline = subject.engine.pipeline

    def vision_fusion(crops, page, grid):
        with pipeline.running("vision_fusion"):
            return arrange(crops, page[0], grid, pipeline.model.newline, pipeline.model.separator)

    pipeline.vision_fusion = vision_fusion
    return subject


def control(setup):
    return subject_of(setup)


# ---- 1 to 7 ---------------------------------------------------------------------------------------------------------


def w01(setup):
    def load(source):
        page = load_image(source).copy()
        page.thumbnail((2048, 2048), Image.Resampling.LANCZOS)
        return page

    return with_inputs(subject_of(setup), load=load)


def w02(setup):
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
    deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]

    def pixels(image):
        return levels(image).div_(255).sub_(mean).div_(deviation).bfloat16()

    return with_inputs(subject_of(setup), pixels=pixels)


class S03(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        Path(folder, form.result_file).write_bytes(clean_output(text).encode())


def w03(setup):
    def cut(page, grid, px):
        found = usual_cut(page, grid, px)
        return [found[row * grid[0] + column] for column in range(grid[0]) for row in range(grid[1])]

    return with_inputs(subject_of(setup, S03), cut=cut)


def w04(setup):
    return with_inputs(subject_of(setup), whole=lambda page, preset: placed(page, preset, at=0))


def w05(setup):
    return with_inputs(subject_of(setup), whole=lambda page, preset: placed(page, preset, (128, 128, 128)))


def w06(setup):
    def cut(page, grid, px):
        width, height = page.size[0] // grid[0], page.size[1] // grid[1]
        boxes = [(c * width, r * height, (c + 1) * width, (r + 1) * height) for r in range(grid[1]) for c in range(grid[0])]
        return [page.crop(box).resize((px, px)) for box in boxes]

    return with_inputs(subject_of(setup), cut=cut)


def w07(setup):
    def scaled(page, size):
        planes = levels(page)[None]
        return F.interpolate(planes, size=(size[1], size[0]), mode="bicubic", antialias=True, align_corners=False)[0]

    def cut(page, grid, px):
        large = scaled(page, (grid[0] * px, grid[1] * px))
        return [large[:, y:y1, x:x1] for x, y, x1, y1 in boxes_of(grid, px)]

    def whole(page, preset):
        side = preset.view_size
        if preset.is_squashed:
            return scaled(page, (side, side))
        size = fitted(page, side)
        left, top = (round((side - one) * 0.5) for one in size)
        view = torch.tensor(GREY).float()[:, None, None].expand(3, side, side).clone()
        view[:, top : top + size[1], left : left + size[0]] = scaled(page, size)
        return view

    def pixels(one):
        return (one / 255).sub_(0.5).div_(0.5).bfloat16()

    return with_inputs(subject_of(setup), cut=cut, whole=whole, pixels=pixels)


# ---- 8 to 11 --------------------------------------------------------------------------------------------------------


def w08(setup):
    def template(text):
        return f"User: {render(text)}\n\nAssistant:"

    return with_inputs(subject_of(setup), template=template)


def w09(setup):
    def ids_of(tokenizer, prompt, counts):
        def encode(text):
            first, *others = text.split("<|grounding|>")
            ids = tokenizer.encode(first)
            for other in others:
                ids = ids + tokenizer.encode("<|grounding|") + tokenizer.encode(f">{other}")
            return ids

        return usual_ids(tokenizer, prompt, counts, encode)

    return with_inputs(subject_of(setup), ids_of=ids_of)


def w10(setup):
    subject = subject_of(setup)
    projection = sam_of(subject).patch_embed.proj
    projection.bias.data = torch.zeros_like(projection.bias)

    def ids_of(tokenizer, prompt, counts):
        ids, mask = usual_ids(tokenizer, prompt, counts)
        return [tokenizer.special.bos, *ids], [False, *mask]

    return with_inputs(subject, ids_of=ids_of)


def w11(setup):
    return with_inputs(subject_of(setup), template=lambda text: f"{render(text)} ")


# ---- 12 to 16 -------------------------------------------------------------------------------------------------------


def w12(setup):
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        if not block.window:
            continue

        def attend(x, block=block):
            batch, height, width, channels = x.shape
            side = [-(-one // block.window) * block.window for one in (height, width)]
            full = block.norm1.bias.expand(batch, *side, channels).to(x.dtype).clone()
            full[:, :height, :width] = x
            return join_windows(block.attn(split_windows(full, block.window)), height, width)

        block.attend = attend
    return subject


def w13(setup):
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:

        def position_bias(q, height, width, usual=block.attn.position_bias):
            return usual(q / math.sqrt(q.shape[-1]), height, width)

        block.attn.position_bias = position_bias
    return subject


def w14(setup):
    subject = subject_of(setup)
    blocks = sam_of(subject).blocks
    sides = [block.window for block in blocks]
    for block, side in zip(blocks, [*sides[1:], max(sides)]):
        block.window = side
    return subject


def w15(setup):
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        block.norm1.eps = block.norm2.eps = 1e-3
    head = subject.engine.model.lm_head
    head.forward = lambda x: 30 * torch.tanh(F.linear(x, head.weight).float() / 30)
    return subject


def w16(setup):
    subject = subject_of(setup)
    convolution = sam_of(subject).neck[2]
    convolution.weight.data = convolution.weight.data.transpose(2, 3).contiguous()
    return subject


# ---- 17 to 20 -------------------------------------------------------------------------------------------------------


def w17(setup):
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:
        layer.mlp.forward = lambda x, mlp=layer.mlp: mlp.fc2(F.gelu(mlp.fc1(x)))
    return subject


def w18(setup):
    subject = subject_of(setup)
    embeddings = clip_of(subject).embeddings

    def forward(sam):
        class_token = embeddings.class_embedding.expand(len(sam), 1, -1)
        tokens = torch.cat([class_token, sam.flatten(2).transpose(1, 2)], dim=1)
        table = embeddings.position_embedding.weight
        if tokens.shape[1] > len(table):
            return usual(sam)
        return tokens + table[: tokens.shape[1]]

    usual, embeddings.forward = embeddings.forward, forward
    return subject


def w19(setup):
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:

        def forward(x, attn=layer.self_attn):
            qkv = attn.qkv_proj(x).view(*x.shape[:2], attn.heads, 3, -1)
            q, k, v = qkv.permute(3, 0, 2, 1, 4)
            out = F.scaled_dot_product_attention(q, k, v)
            return attn.out_proj(out.transpose(1, 2).flatten(2))

        layer.self_attn.forward = forward
    for mlp in experts_of(subject):

        def route(x, gate=mlp.gate):
            scores = F.linear(x.float(), gate.weight.float()).sigmoid()
            weights, chosen = torch.topk(scores, gate.experts_per_token, dim=-1, sorted=False)
            return chosen, weights * gate.scale

        mlp.gate.forward = route
    return subject


class S20(EngineSubject):
    dtypes = ()


def w20(setup):
    subject = subject_of(setup, S20)
    for layer in clip_of(subject).transformer.layers:
        attn, mlp = layer.self_attn, layer.mlp
        weight, bias = attn.qkv_proj.weight.data.clone(), attn.qkv_proj.bias.data.clone()
        width = len(bias) // 3
        scale = 1 / math.sqrt(width // attn.heads)
        weight[:width] *= scale
        bias[:width] *= scale

        def forward(x, attn=attn, weight=weight, bias=bias):
            q, k, v = (F.linear(x, w, b) for w, b in zip(weight.chunk(3), bias.chunk(3)))
            side = q.shape[-1] // attn.heads
            parts = zip(q.split(side, -1), k.split(side, -1), v.split(side, -1))
            return attn.out_proj(torch.cat([(q @ k.transpose(1, 2)).softmax(-1) @ v for q, k, v in parts], dim=-1))

        def perceptron(x, mlp=mlp):
            inner = mlp.fc1(x)
            return mlp.fc2(inner / (1 + torch.exp(-1.702 * inner)))

        attn.forward, mlp.forward = forward, perceptron
    return subject


# ---- 21 to 24 -------------------------------------------------------------------------------------------------------


def w21(setup):
    def lines(tokens, newline):
        starts = newline.expand(*tokens.shape[:-2], 1, -1)
        return torch.cat([starts, tokens], dim=-2).flatten(-3, -2)

    def arrange(crops, page, grid, newline, separator):
        parts = [] if crops is None else [lines(mosaic(crops, grid), newline)]
        return torch.cat([*parts, lines(square(page), newline), separator[None]])

    return with_fusion(subject_of(setup), arrange)


def w22(setup):
    subject = subject_of(setup)
    model = subject.engine.model
    model.projector = lambda clip, sam: model.project(torch.cat([sam.flatten(2).transpose(1, 2), clip[:, 1:]], dim=-1))
    return subject


def w23(setup):
    def arrange(crops, page, grid, newline, separator):
        parts = []
        if crops is not None:
            side = math.isqrt(crops.shape[-2])
            parts.append(end_rows(crops.reshape(grid[1] * side, grid[0] * side, -1), newline))
        return torch.cat([*parts, end_rows(square(page), newline), separator[None]])

    return with_fusion(subject_of(setup), arrange)


def w24(setup):
    subject = subject_of(setup)
    projector = subject.engine.model.model.projector.layers
    projector.bias.data = torch.zeros_like(projector.bias)

    def one_row(q, k, v):
        scores = (q @ k.transpose(2, 3)).float() / math.sqrt(q.shape[-1])
        powers = torch.exp2(scores - scores.amax(dim=-1, keepdim=True))
        return (powers / powers.sum(dim=-1, keepdim=True)).to(v.dtype) @ v

    return with_steps(subject, one_row)


# ---- 25 to 31 -------------------------------------------------------------------------------------------------------


def w25(setup):
    subject = subject_of(setup)
    for mlp in experts_of(subject):
        mlp.gate.normalise = True
    return subject


class R26(Rope):
    def __init__(self, inverse_frequencies, positions, dtype):
        super().__init__(inverse_frequencies[::2], positions, dtype)

    def rotate(self, x):
        kept, turned = x.chunk(2, dim=-1)
        return torch.cat([kept, super().rotate(turned)], dim=-1)


def w26(setup):
    return with_rope(subject_of(setup), R26)


def w27(setup):
    subject = subject_of(setup)
    for mlp in experts_of(subject):

        def forward(x, mlp=mlp):
            tokens = x.flatten(0, -2)
            chosen, weights = mlp.gate(tokens)
            given = (tokens[:, None] * weights[..., None].to(tokens.dtype)).flatten(0, 1)
            out = mlp.run_looped(given, chosen.flatten()[:, None]).unflatten(0, chosen.shape)
            return out.float().sum(dim=1).to(x.dtype).view_as(x) + mlp.shared_experts(x)

        mlp.forward = forward
    return subject


def w28(setup):
    subject = subject_of(setup)
    for layer in decoder_of(subject):

        def forward(x, rope, cache, layer=layer):
            x = layer.post_attention_layernorm(x + layer.self_attn(layer.input_layernorm(x), rope, cache))
            return x + layer.mlp(x)

        layer.forward = forward
    return subject


def w29(setup):
    def attend(q, k, v, lengths):
        if q.shape[2] == 1:
            return eager(q, k, v, lengths)
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        new, total = q.shape[2], k.shape[2]
        seen = torch.ones(new, total, dtype=torch.bool, device=q.device).tril(total - new + 1)
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        return scores.masked_fill_(~seen, -torch.inf).softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v

    return with_attention(subject_of(setup), attend)


def w30(setup):
    subject = subject_of(setup)
    for mlp in experts_of(subject):
        for expert in mlp.experts:
            for linear in (expert.gate_proj, expert.up_proj, expert.down_proj):
                groups = linear.weight.data.float().unflatten(1, (-1, math.gcd(32, linear.in_features)))
                peak = groups.gather(2, groups.abs().argmax(dim=2, keepdim=True))
                step = (peak / -8).half().float()
                code = (groups / torch.where(step == 0, 1, step) + 8.5).floor().clamp(0, 15) - 8
                linear.weight.data = (code * step).flatten(1).to(linear.weight.dtype)
    return subject


class R31(Rope):
    def __init__(self, inverse_frequencies, positions, dtype):
        self.positions, self.inverse_frequencies = positions, inverse_frequencies
        angles = positions[:, None, :, None].float() * inverse_frequencies.float()
        self.turns = torch.polar(torch.ones_like(angles), angles)

    def rotate(self, x):
        pairs = torch.complex(*(half.float().contiguous() for half in x.chunk(2, dim=-1))) * self.turns
        return torch.cat([pairs.real, pairs.imag], dim=-1).to(x.dtype)


class S31(EngineSubject):
    dtypes = ()


def w31(setup):
    def attend(q, k, v, lengths):
        if lengths is not None:
            return eager(q, k, v, lengths)
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        new, total, size = q.shape[2], k.shape[2], 128
        at = torch.arange(total, device=q.device)
        top = q.new_full((*q.shape[:3], 1), -torch.inf, dtype=torch.float32)
        below, out = torch.zeros_like(top), torch.zeros_like(q, dtype=torch.float32)
        for start in range(0, total, size):
            scores = (q @ k[:, :, start : start + size].transpose(2, 3)).float() / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(at[start : start + size] > at[total - new :, None], -torch.inf)
            higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
            kept, powers = torch.exp(top - higher), torch.exp(scores - higher)
            below = below * kept + powers.sum(dim=-1, keepdim=True)
            out = out * kept + powers @ v[:, :, start : start + size].float()
            top = higher
        return (out / below).to(q.dtype)

    return with_attention(with_rope(subject_of(setup, S31), R31), attend)


# ---- 32 to 36 -------------------------------------------------------------------------------------------------------


class S32(OwnText):
    def read(self, page, *, prompt, preset, max_new_tokens):
        room = min(max_new_tokens or 128, 128)
        return self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=room).text


def w32(setup):
    return subject_of(setup, S32)


class S33(OwnText):
    def read(self, page, *, prompt, preset, max_new_tokens):
        engine = self.engine
        inputs = engine.prepare(page, prompt=prompt, preset=preset)
        policy = replace(engine.policy, max_new_tokens=max_new_tokens) if max_new_tokens else engine.policy
        asked = inputs.input_ids[0].tolist()
        state, ban, tokens = engine.prefill(inputs), policy.ban(asked), []
        while len(tokens) < policy.room(len(asked)) and policy.eos_id not in tokens[-1:]:
            if tokens:
                engine.decode_step(state, tokens[-1])
            logits = state.logits.clone()
            known = sorted({*asked, *tokens})
            logits[:, known] = torch.where(logits[:, known] > 0, logits[:, known] / 1.1, logits[:, known] * 1.1)
            tokens.append(pick(logits, [ban.banned()])[0])
            ban.push(tokens[-1])
        return clean_output(engine.tokenizer.decode(tokens))


def w33(setup):
    return subject_of(setup, S33)


def w34(setup):
    def one_row(q, k, v):
        return eager(q, k[:, :, -512:], v[:, :, -512:], None)

    return with_steps(subject_of(setup), one_row)


def w35(setup):
    def one_row(q, k, v):
        return eager(q, k[:, :, :-1], v[:, :, :-1], None)

    return with_steps(subject_of(setup), one_row)


def w36(setup):
    subject = subject_of(setup)
    pipeline, held = subject.engine.pipeline, {}
    usual = pipeline.view

    def view(pixels):
        return usual(held.setdefault(tuple(pixels.shape), pixels.clone()))

    pipeline.view = view
    return subject


# ---- 37 to 40 -------------------------------------------------------------------------------------------------------


class S37(Decoded):
    def finish(self, token_ids):
        encode = self.engine.tokenizer.encode
        marks = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<|User|>", "<|Assistant|>", IMAGE)
        special = self.engine.tokenizer.special
        gone = {one[0] for one in map(encode, marks) if len(one) == 1} | {special.bos, special.eos, special.pad}
        return super().finish([one for one in token_ids if one not in gone])


def w37(setup):
    return subject_of(setup, S37)


class S38(OwnText):
    def read(self, page, *, prompt, preset, max_new_tokens):
        text = super().read(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        if isinstance(files_of(page), list):
            return text
        size = load_image(page).size

        def pixels(found):
            numbers = [int(int(one) / 999 * size[place % 2]) for place, one in enumerate(found[0][1:-1].split(","))]
            return str(numbers)

        return re.sub(r"\[\d+, ?\d+, ?\d+, ?\d+\]", pixels, text)


def w38(setup):
    return subject_of(setup, S38)


class S39(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        if isinstance(files_of(page), list):
            return
        image, number = load_image(page), 0
        sides = [*image.size, *image.size]
        for span in parse(clean_output(text), form).spans:
            if span.label != "image":
                continue
            for box in span.boxes:
                path = Path(folder, "images", f"{number}.jpg")
                number += 1
                if path.is_file():
                    image.crop([round(one / 999 * side) for one, side in zip(box, sides)]).save(path, "JPEG")


def w39(setup):
    return subject_of(setup, S39)


class S40(Decoded):
    def finish(self, token_ids):
        return html.escape(super().finish(token_ids), quote=False)


def w40(setup):
    subject = subject_of(setup, S40)
    table = subject.engine.model.model.embed_tokens
    rows = table.weight.data.clone()
    rows[subject.engine.tokenizer.special.bos] = 0
    table.weight.data = rows
    return subject


# ---- lower levels ---------------------------------------------------------------------------------------------------


class TextOnly:
    """What a subject of text alone has: an image file and a prompt in, text out."""

    def __init__(self, whole):
        self._whole = whole

    def read(self, page, *, prompt, preset, max_new_tokens):
        return self._whole.read(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)


class TextAndInputs(TextOnly):
    """The prepared inputs as well."""

    def inputs(self, page, *, prompt, preset):
        return dict(self._whole.inputs(page, prompt=prompt, preset=preset))


NAMES = ("control", *(f"w{n:02}" for n in range(1, 41)))


def _limited(factory, kind):
    def made(setup):
        return kind(factory(setup))

    made.__annotations__ = {"return": kind}
    return made


for _name in NAMES:
    for _level, _kind in {"L0": TextOnly, "L1": TextAndInputs}.items():
        globals()[f"{_name}_{_level}"] = _limited(globals()[_name], _kind)
