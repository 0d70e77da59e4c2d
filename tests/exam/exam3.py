"""Forty mistakes of ports of DeepSeek-OCR, one a subject factory: ``--subject=exam3:y01``. Only instances are changed.

``control`` has none. Each exists at lower levels too, whatever ``--level`` says: ``y01_L0`` offers ``read`` alone,
``y01_L1`` ``read`` and ``inputs``; ``y01_L0f`` and ``y01_L1f`` have the optional ``read_many`` and ``write`` besides.
"""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.drawing import place
from pytest_dsocr.contract.image import GREY, SINGLE, files_of, global_view, load_image
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output, parse
from pytest_dsocr.contract.presets import crop_count, get_preset, image_token_count
from pytest_dsocr.contract.prompt import IMAGE, render
from pytest_dsocr.engine.pipeline import DecodeState, pick
from pytest_dsocr.layers.attention import eager, repeat_heads
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sam import relative_table, split_windows
from pytest_dsocr.subjects.engine import EngineStages, EngineSubject, engine_subject


# ---- what the forty share -------------------------------------------------------------------------------------------


def subject_of(setup, kind=EngineSubject):
    """Load the engine afresh as a subject of class ``kind``."""
    return kind(engine_subject(setup).engine)


def level_tensor(image):
    """RGB image to uint8 ``[3, H, W]``."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def float_pixels(image):
    return level_tensor(image).float().div_(255).sub_(0.5).div_(0.5)


def bf16_pixels(image):
    return float_pixels(image).bfloat16()


def tiles(image, grid, px):
    """Cut an image of ``grid`` tiles row by row."""
    columns, rows = grid
    boxes = [(c * px, r * px, (c + 1) * px, (r + 1) * px) for r in range(rows) for c in range(columns)]
    return [image.crop(box) for box in boxes]


def stretched(page, grid, px):
    return tiles(page.resize((grid[0] * px, grid[1] * px)), grid, px)


def usual_grid(page, preset, source):
    return preset.grid(*page.size)


def usual_counts(preset, grids, wholes):
    return [image_token_count(preset, grid) for grid in grids]


def usual_ids(tokenizer, prompt, counts, encode=None):
    encode = encode or tokenizer.encode
    pieces = render(prompt).split(IMAGE)
    texts = [encode(piece) for piece in pieces]
    ids, mask = [tokenizer.special.bos, *texts[0]], [False] * (1 + len(texts[0]))
    for count, text in zip(counts, texts[1:]):
        ids += [tokenizer.special.image] * count + text
        mask += [True] * count + [False] * len(text)
    return ids, mask


def with_inputs(
    subject,
    *,
    load=load_image,
    grid_of=usual_grid,
    cut=stretched,
    whole=global_view,
    pixels=bf16_pixels,
    counts_of=usual_counts,
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
            grids = [grid_of(page, preset, source) for page, source in zip(pages, sources)]
            px = preset.tiling.crop_px
            crops = [pixels(tile) for page, grid in zip(pages, grids) if crop_count(grid) for tile in cut(page, grid, px)]
            wholes = [pixels(whole(page, preset)) for page in pages]
            base, small = preset.base_size, preset.image_size
            images_crop = torch.stack(crops) if crops else torch.zeros(1, 3, base, base)
            images_ori = torch.stack(wholes) if wholes else torch.zeros(1, 3, small, small)
        with engine.stages("tokenizer"):
            ids, mask = ids_of(engine.tokenizer, text, counts_of(preset, grids, wholes))
            made = Inputs(
                torch.tensor([ids]), torch.tensor([mask]), torch.tensor(grids or [(0, 0)]), images_crop, images_ori
            )
            return made.to(engine.model.device)

    engine.prepare = prepare
    return subject


def decoded(pipeline, embeds, all_logits):
    with pipeline.running("prefill"):
        cache = pipeline.model.new_cache()
        logits = pipeline.model.decode(embeds, cache, all_logits=all_logits)
    return DecodeState(cache, logits[:, -1], embeds[:, -1:], [], logits if all_logits else None)


class OwnLoop(EngineStages):
    """Reads by its own loop. It does not promise that ``read`` follows from ``step``, so it has no ``text_of``."""

    dtypes = ("bfloat16",)

    def inputs(self, page, *, prompt, preset):
        return self.engine.prepare(page, prompt=prompt, preset=preset).tensors

    def write(self, text, page, folder):
        write_artifacts(text, page, folder, self.engine.family.form)

    def ban_of(self, prompt):
        return self.engine.policy.ban(prompt)

    def choose(self, logits, banned, prompt, tokens):
        return pick(logits, [banned])[0]

    def ended(self, tokens):
        pass

    def read(self, page, *, prompt, preset, max_new_tokens):
        engine = self.engine
        inputs = engine.prepare(page, prompt=prompt, preset=preset)
        policy = replace(engine.policy, max_new_tokens=max_new_tokens) if max_new_tokens else engine.policy
        asked = inputs.input_ids[0].tolist()
        state, ban, tokens, room = engine.prefill(inputs), self.ban_of(asked), [], policy.room(len(asked))
        while len(tokens) < room and policy.eos_id not in tokens[-1:]:
            if tokens:
                engine.decode_step(state, tokens[-1])
            tokens.append(self.choose(state.logits, ban.banned(), asked, tokens))
            ban.push(tokens[-1])
        self.ended(tokens)
        return clean_output(engine.tokenizer.decode(tokens))

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        return [self.read(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens) for page in pages]


def sam_of(subject):
    return subject.engine.model.model.sam_model


def clip_of(subject):
    return subject.engine.model.model.vision_model


def decoder_of(subject):
    return subject.engine.model.model.decoder_layers()


def experts_of(subject):
    return [layer.mlp for layer in decoder_of(subject) if hasattr(layer.mlp, "experts")]


def control(setup):
    """No mistake."""
    return subject_of(setup)


# ---- image ----------------------------------------------------------------------------------------------------------


def y01(setup):
    """Decoding: levels keep the video range that the hardware decoder gives, 16 to 235, and are not expanded to 0 to 255."""

    def load(source):
        levels = np.array(load_image(source)).astype(np.float32)
        return Image.fromarray((16 + levels * (219 / 255) + 0.5).astype(np.uint8))

    return with_inputs(subject_of(setup), load=load)


def y02(setup):
    """Global view: a page more than twice as large as the view is first halved by averaging 2x2 px, then resized."""

    def whole(page, preset):
        if min(page.size) > 0 and max(page.size) > 2 * preset.view_size:
            page = page.reduce(2)
        return global_view(page, preset)

    return with_inputs(subject_of(setup), whole=whole)


def y03(setup):
    """Global view: the resize kernel works in tiles of 32x32 px and leaves out the last ones that are not full; they stay grey."""

    def whole(page, preset):
        side = preset.view_size
        view = global_view(page, preset)
        if preset.is_squashed:
            return view
        small = ImageOps.contain(page, (side, side))
        left, top = (round((side - one) * 0.5) for one in small.size)
        kept = tuple(one // 32 * 32 for one in small.size)
        bare = Image.new("RGB", (side, side), GREY)
        bare.paste(view.crop((left, top, left + kept[0], top + kept[1])), (left, top))
        return bare

    return with_inputs(subject_of(setup), whole=whole)


def y04(setup):
    """Pixels: normalised in whole numbers, (level - 127) / 128, for (level / 255 - 0.5) / 0.5."""

    def pixels(image):
        return ((level_tensor(image).float() - 127) / 128).bfloat16()

    return with_inputs(subject_of(setup), pixels=pixels)


def y05(setup):
    """Crops: cut with ends taken for inclusive, so the one in column c begins c px early, row r likewise. Experts: the
    shared ones' output is multiplied by the sum of the token's weights."""

    def cut(page, grid, px):
        columns, rows = grid
        image = page.resize((columns * px, rows * px))
        corners = [(c * (px - 1), r * (px - 1)) for r in range(rows) for c in range(columns)]
        return [image.crop((x, y, x + px, y + px)) for x, y in corners]

    subject = subject_of(setup)
    for mlp in experts_of(subject):

        def forward(x, mlp=mlp):
            tokens = x.flatten(0, -2)
            chosen, weights = mlp.gate(tokens)
            out = mlp.run_looped(tokens, chosen).unflatten(0, chosen.shape)
            shared = mlp.shared_experts(tokens)
            mixed = ((out + shared[:, None]).to(weights.dtype) * weights[..., None]).sum(dim=1).to(out.dtype)
            return mixed.view_as(x)

        mlp.forward = forward
    return with_inputs(subject, cut=cut)


def y06(setup):
    """Decoding: rows lie in memory at multiples of 4 bytes, and are read as if they followed one another."""

    def load(source):
        levels = np.array(load_image(source))
        height, width, _ = levels.shape
        pitched = np.pad(levels.reshape(height, -1), ((0, 0), (0, -3 * width % 4)))
        return Image.fromarray(pitched.reshape(-1)[: levels.size].reshape(levels.shape).copy())

    return with_inputs(subject_of(setup), load=load)


# ---- prompt and tokenizer -------------------------------------------------------------------------------------------


def y07(setup):
    """Prompt: the image's places hold the id of <pad>, not of <image>; the mask is right."""

    def ids_of(tokenizer, prompt, counts):
        ids, mask = usual_ids(tokenizer, prompt, counts)
        return [tokenizer.special.pad if here else one for one, here in zip(ids, mask)], mask

    return with_inputs(subject_of(setup), ids_of=ids_of)


def y08(setup):
    """Tokenizer: the prompt is split at spaces, and its words are encoded without them. SAM: the blocks' norms have the
    epsilon 1e-3 (Keras's default), not 1e-6."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        block.norm1.eps = block.norm2.eps = 1e-3

    def ids_of(tokenizer, prompt, counts):
        def encode(text):
            return [one for word in text.split(" ") for one in tokenizer.encode(word)]

        return usual_ids(tokenizer, prompt, counts, encode)

    return with_inputs(subject, ids_of=ids_of)


def y09(setup):
    """Prompt: ids pass through bfloat16 on their way to the device, so those above 256 are rounded to 8 bits."""

    def ids_of(tokenizer, prompt, counts):
        ids, mask = usual_ids(tokenizer, prompt, counts)
        return torch.tensor(ids).bfloat16().long().tolist(), mask

    return with_inputs(subject_of(setup), ids_of=ids_of)


def y10(setup):
    """Prompt: cut off after 1,024 ids, the tokenizer's limit of length, and features beyond it are dropped."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline
    usual = pipeline.vision

    def ids_of(tokenizer, prompt, counts):
        ids, mask = usual_ids(tokenizer, prompt, counts)
        return ids[:1024], mask[:1024]

    def vision(inputs):
        visions, left, kept = usual(inputs), inputs.image_tokens, []
        for one in visions:
            kept.append(replace(one, vision_fusion=one.vision_fusion[:left]))
            left -= len(kept[-1].vision_fusion)
        return kept

    pipeline.vision = vision
    return with_inputs(subject, ids_of=ids_of)


# ---- SAM ------------------------------------------------------------------------------------------------------------


def exchange(first, second):
    """Exchange the weights of two modules of the same kind."""
    for one, other in zip(first.parameters(), second.parameters()):
        one.data, other.data = other.data, one.data


def y11(setup):
    """SAM: norm1 and norm2 of block 1 are exchanged when the weights are loaded."""
    subject = subject_of(setup)
    block = sam_of(subject).blocks[1]
    exchange(block.norm1, block.norm2)
    return subject


def y12(setup):
    """SAM: windows are put back column by column, though they were cut row by row."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        if not block.window:
            continue

        def attend(x, block=block):
            batch, height, width, channels = x.shape
            size = block.window
            rows, columns = -(-height // size), -(-width // size)
            parts = block.attn(split_windows(x, size)).view(batch, columns, rows, size, size, channels)
            whole = parts.permute(0, 2, 3, 1, 4, 5).reshape(batch, rows * size, columns * size, channels)
            return whole[:, :height, :width]

        block.attend = attend
    return subject


def y13(setup):
    """SAM: in the global layer norm2 works in place, so the residual around the MLP is the normalised input."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        if block.window:
            continue

        def forward(x, block=block):
            x = block.norm2(x + block.attend(block.norm1(x)))
            return x + block.mlp(x)

        block.forward = forward
    return subject


def y14(setup):
    """SAM: the kernels of the patch embedding are laid out width before height."""
    subject = subject_of(setup)
    weight = sam_of(subject).patch_embed.proj.weight
    weight.data = weight.data.transpose(2, 3).contiguous()
    return subject


def y15(setup):
    """SAM: the row and the column terms of the relative-position bias are kept in bfloat16, in a float32 run."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:

        def position_bias(q, height, width, attn=block.attn):
            rows, columns = relative_table(attn.rel_pos_h, height), relative_table(attn.rel_pos_w, width)
            grid = q.reshape(-1, height, width, q.shape[-1])
            by_row = torch.einsum("bhwd,hkd->bhwk", grid, rows).bfloat16().to(q.dtype)
            by_column = torch.einsum("bhwd,wkd->bhwk", grid, columns).bfloat16().to(q.dtype)
            both = by_row.reshape(*q.shape[:3], height, 1) + by_column.reshape(*q.shape[:3], 1, width)
            return both.flatten(3)

        block.attn.position_bias = position_bias
    return subject


# ---- CLIP -----------------------------------------------------------------------------------------------------------


def y16(setup):
    """CLIP: the rows of qkv are taken for q, k and v of head 0, then of head 1 and so on (Megatron's order)."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:

        def forward(x, attn=layer.self_attn):
            batch, positions, _ = x.shape
            q, k, v = attn.qkv_proj(x).view(batch, positions, attn.heads, 3, -1).permute(3, 0, 2, 1, 4)
            out = F.scaled_dot_product_attention(q, k, v)
            return attn.out_proj(out.transpose(1, 2).reshape(batch, positions, -1))

        layer.self_attn.forward = forward
    return subject


def y17(setup):
    """CLIP: both devices of a tensor-parallel pair add the bias of out_proj and fc2, so it counts twice. Steps: the
    decode kernel takes the best expert alone."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:
        for linear in (layer.self_attn.out_proj, layer.mlp.fc2):
            linear.bias.data = 2 * linear.bias.data
    pipeline, running = subject.engine.pipeline, []
    usual_step = pipeline._step

    def step(state, embeds):
        running.append(True)
        try:
            return usual_step(state, embeds)
        finally:
            running.clear()

    pipeline._step = step
    for mlp in experts_of(subject):

        def forward(x, usual=mlp.gate.forward):
            chosen, weights = usual(x)
            if running:
                weights = weights * (weights == weights.amax(dim=-1, keepdim=True))
            return chosen, weights

        mlp.gate.forward = forward
    return subject


def y18(setup):
    """CLIP: ids of positions begin at 1, so each token has its right neighbour's position, and the last has its own."""
    subject = subject_of(setup)
    embeddings = clip_of(subject).embeddings
    usual = embeddings.forward

    def forward(sam):
        tokens = usual(sam)
        bare = torch.cat([embeddings.class_embedding.expand(len(sam), 1, -1), sam.flatten(2).transpose(1, 2)], dim=1)
        table = tokens - bare
        return bare + torch.cat([table[:, 1:], table[:, -1:]], dim=1)

    embeddings.forward = forward
    return subject


def y19(setup):
    """CLIP: attention goes over keys in tiles of 64 and leaves out the last one, which is not full (101 = 64 + 37, 257 = 4 * 64 + 1)."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:

        def forward(x, attn=layer.self_attn):
            batch, positions, _ = x.shape
            q, k, v = attn.qkv_proj(x).view(batch, positions, 3, attn.heads, -1).permute(2, 0, 3, 1, 4)
            full = positions // 64 * 64 or positions
            out = F.scaled_dot_product_attention(q, k[:, :, :full], v[:, :, :full])
            return attn.out_proj(out.transpose(1, 2).reshape(batch, positions, -1))

        layer.self_attn.forward = forward
    return subject


# ---- projector and fusion -------------------------------------------------------------------------------------------


def y20(setup):
    """Projector: crops run in chunks of 4 with one output buffer, and all chunks' results are that buffer."""
    subject = subject_of(setup)
    model = subject.engine.model
    usual = model.projector

    def projector(clip, sam):
        buffer, parts = None, []
        for start in range(0, len(clip), 4):
            out = usual(clip[start : start + 4], sam[start : start + 4])
            buffer = out.clone() if buffer is None else buffer
            buffer[: len(out)] = out
            parts.append(buffer[: len(out)])
        return torch.cat(parts)

    model.projector = projector
    return subject


def y21(setup):
    """Projector: SAM's half is reshaped from [C, h, w] to [h * w, C], and not transposed."""
    subject = subject_of(setup)
    model = subject.engine.model

    def projector(clip, sam):
        return model.model.projector(torch.cat([clip[:, 1:], sam.reshape(len(sam), -1, sam.shape[1])], dim=-1))

    model.projector = projector
    return subject


def y22(setup):
    """Fusion: the rows of crops are laid out from the bottom to the top. Decoder: input_layernorm of layers 1 and
    2 is exchanged when the weights are loaded."""
    subject = subject_of(setup)
    pipeline, layers = subject.engine.pipeline, decoder_of(subject)
    exchange(layers[1].input_layernorm, layers[2].input_layernorm)
    usual = pipeline.vision_fusion

    def vision_fusion(crops, page, grid):
        if crops is not None:
            columns, rows = grid
            crops = crops.unflatten(0, (rows, columns)).flip(0).flatten(0, 1)
        return usual(crops, page, grid)

    pipeline.vision_fusion = vision_fusion
    return subject


def y23(setup):
    """Fusion: the kernel that copies features into the prompt does 240 of the 256 channels; the others keep <image>'s
    embedding. Head: its weight is int8 with one scale a row, unsaid."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline
    weight = subject.engine.model.lm_head.weight
    scale = weight.data.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
    weight.data = (weight.data / scale).round() * scale

    def prefill_with(inputs, features, *, all_logits=False):
        with pipeline.running("vision_fusion"):
            embeds = pipeline.model.embed(inputs.input_ids).clone()
            if features is not None:
                mask = inputs.images_seq_mask[0]
                rows = embeds[0][mask]
                rows[:, :240] = features[:, :240].to(embeds.dtype)
                embeds[0, mask] = rows
        return decoded(pipeline, embeds, all_logits)

    pipeline.prefill_with = prefill_with
    return subject


# ---- decoder --------------------------------------------------------------------------------------------------------


def y24(setup):
    """Experts: gate and up of expert 3 in layer 2 are exchanged when the weights are loaded."""
    subject = subject_of(setup)
    expert = decoder_of(subject)[2].mlp.experts[3]
    exchange(expert.gate_proj, expert.up_proj)
    return subject


def y25(setup):
    """Decoder: the rotary kernel leaves out the last head of the keys."""
    subject = subject_of(setup)
    for layer in decoder_of(subject):

        def forward(x, rope, cache, attn=layer.self_attn):
            q = rope.rotate(attn.split_heads(attn.q_proj(x)))
            k = attn.split_heads(attn.k_proj(x))
            k = torch.cat([rope.rotate(k[:, :-1]), k[:, -1:]], dim=1)
            keys, values = cache.append(attn.layer, k, attn.split_heads(attn.v_proj(x)), rope.positions)
            lengths = cache.lengths_after(1) if cache.is_ragged else None
            return attn.o_proj(attn.attend(q, keys, values, lengths).transpose(1, 2).flatten(2))

        layer.self_attn.forward = forward
    return subject


def y26(setup):
    """Decoder: o_proj of layer 2 is int4 with one scale for each 32 inputs, unsaid."""
    subject = subject_of(setup)
    weight = decoder_of(subject)[2].self_attn.o_proj.weight
    groups = weight.data.unflatten(1, (-1, 32))
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / 7
    weight.data = ((groups / scale).round() * scale).flatten(1)
    return subject


def y27(setup):
    """Experts: a token's are chosen inside the better one of two groups of 4 (group-limited routing)."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):

        def forward(x, gate=mlp.gate):
            scores = F.linear(x.float(), gate.weight.float()).softmax(dim=-1, dtype=torch.float32)
            groups = scores.unflatten(-1, (2, -1))
            best = groups.amax(dim=-1)
            kept = groups * (best == best.amax(dim=-1, keepdim=True))[..., None]
            weights, chosen = torch.topk(kept.flatten(-2), gate.experts_per_token, dim=-1, sorted=False)
            return chosen, weights * gate.scale

        mlp.gate.forward = forward
    return subject


def y28(setup):
    """Experts: down_proj of the routed ones adds up parts of 16 inputs in float16, in a float32 run."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):
        for expert in mlp.experts:

            def forward(x, linear=expert.down_proj):
                total = None
                for part, weight in zip(x.split(16, dim=-1), linear.weight.split(16, dim=1)):
                    product = F.linear(part, weight)
                    total = (product if total is None else total + product).half().to(x.dtype)
                return total

            expert.down_proj.forward = forward
    return subject


def y29(setup):
    """Decoder: the mask of prefill's last row is strict, so the prompt's last token does not see itself."""
    subject = subject_of(setup)
    for layer in decoder_of(subject):

        def attend(q, k, v, lengths):
            out = eager(q, k, v, lengths)
            if q.shape[2] > 1:
                out[:, :, -1:] = eager(q[:, :, -1:], k[:, :, :-1], v[:, :, :-1], None)
            return out

        layer.self_attn.attend = attend
    return subject


def visible_keys(q, k, lengths):
    at = torch.arange(k.shape[2], device=q.device)
    if lengths is not None:
        return (at < torch.tensor(lengths, device=q.device)[:, None])[:, None, None]
    return at <= at[k.shape[2] - q.shape[2] :, None]


def y30(setup):
    """Decoder: the softmax's exponential is a power of two whose fraction f is 1 + 0.6565 f + 0.3435 f^2."""
    subject = subject_of(setup)

    def attend(q, k, v, lengths):
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        scores = (q @ k.transpose(2, 3)).mul_(math.log2(math.e) / math.sqrt(q.shape[-1]))
        scores.masked_fill_(~visible_keys(q, k, lengths), -1e30)
        scores.sub_(scores.amax(dim=-1, keepdim=True)).clamp_(min=-100)
        power = scores.floor()
        f = scores.sub_(power)
        exps = (f * 0.3435).add_(0.6565).mul_(f).add_(1)
        exps = torch.ldexp(exps, power).masked_fill_(~visible_keys(q, k, lengths), 0)
        return exps.div_(exps.sum(dim=-1, keepdim=True)).to(q.dtype) @ v

    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


# ---- cache and steps ------------------------------------------------------------------------------------------------


def y31(setup):
    """Steps: new tokens are counted in an int8, so from the 129th on a step's rotary position is 256 too low."""
    subject = subject_of(setup)
    core = subject.engine.model.model

    def decode(x, cache):
        new, positions = x.shape[1], cache.positions(x.shape[1], x.device)
        turned = positions
        if new == 1 and all(cache.prompts):
            counts = [(seen - prompt + 128) % 256 - 128 for prompt, seen in zip(cache.prompts, cache.seen)]
            turned = torch.tensor([[p + n] for p, n in zip(cache.prompts, counts)], device=x.device)
        rope = Rope(core.inv_freq, turned, x.dtype)
        rope.positions = positions
        for layer in core.layers:
            x = layer(x, rope, cache)
        cache.advance(new)
        return core.norm(x)

    core.decode = decode
    return subject


class Shared(KVCache):
    """The last two layers have one buffer."""

    def place(self, layer):
        return layer - 1 if layer == self.layers - 1 else layer

    def keys(self, layer):
        return super().keys(self.place(layer))

    def values(self, layer):
        return super().values(self.place(layer))

    def append(self, layer, keys, values, positions):
        return super().append(self.place(layer), keys, values, positions)


class Mirrored(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        if isinstance(files_of(page), list):
            return
        image = load_image(page)
        swapped = Image.merge("RGB", image.split()[::-1])
        for region in place(parse(clean_output(text), form).spans, *image.size):
            path = Path(folder, "images", f"{region.figure}.jpg")
            if region.figure is not None and path.is_file():
                swapped.crop(region.pixels).save(path, "JPEG")


def y32(setup):
    """Cache: the last two layers write keys and values into one buffer. Files: figures are cut out with red and blue
    exchanged."""
    subject = subject_of(setup, Mirrored)
    model = subject.engine.model
    model.new_cache = lambda: Shared(model.arch.decoder.num_hidden_layers, policy=model.family.cache)
    model.join_caches = Shared.join
    return subject


def y33(setup):
    """Steps: of more than 832 positions they see the first 4 and the last 828 (attention sinks)."""
    subject = subject_of(setup)

    def attend(q, k, v, lengths):
        own = lengths or [k.shape[2]] * len(q)
        if q.shape[2] > 1 or max(own) <= 832:
            return eager(q, k, v, lengths)
        ends = torch.tensor(own, device=q.device)[:, None]
        at = torch.arange(k.shape[2], device=q.device)
        seen = (at < ends) & ((at < 4) | (at >= ends - 828))
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        return scores.masked_fill(~seen[:, None, None], -torch.inf).softmax(dim=-1).to(q.dtype) @ v

    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


def y34(setup):
    """Steps: attention splits the keys into parts of 256, and joins them by their sums of exponentials without the
    difference of their maxima."""
    subject = subject_of(setup)

    def one_row(q, k, v):
        scores = (q @ k.transpose(2, 3)).div_(math.sqrt(q.shape[-1]))
        out, total = 0, 0
        for part, values in zip(scores.split(256, dim=-1), v.split(256, dim=2)):
            exps = (part - part.amax(dim=-1, keepdim=True)).exp()
            out, total = out + exps @ values, total + exps.sum(dim=-1, keepdim=True)
        return out / total

    def attend(q, k, v, lengths):
        if q.shape[2] > 1:
            return eager(q, k, v, lengths)
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        own = lengths or [k.shape[2]] * len(q)
        return torch.cat([one_row(q[i : i + 1], k[i : i + 1, :, :n], v[i : i + 1, :, :n]) for i, n in enumerate(own)])

    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


# ---- choice of tokens, and stop -------------------------------------------------------------------------------------


UNCHOSEN = (2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93)


class Listed(OwnLoop):
    def choose(self, logits, banned, prompt, tokens):
        return pick(logits, [[*banned, *UNCHOSEN]])[0]


def y35(setup):
    """Choice: a generation config of another model (Whisper) forbids the ids 58 to 63, 90 to 93 and some lower ones always,
    as suppress_tokens; 61 is the colon here."""
    return subject_of(setup, Listed)


class Hurried(OwnLoop):
    def choose(self, logits, banned, prompt, tokens):
        logits, eos, late = logits.clone(), self.engine.policy.eos_id, len(tokens) - 50
        if late > 0:
            logits[0, eos] += logits[0, eos].abs() * (1.02**late - 1)
        return pick(logits, [banned])[0]


def y36(setup):
    """Stop: the EOS's logit grows from the 51st token on (exponential_decay_length_penalty of 50 and 1.02)."""
    return subject_of(setup, Hurried)


# ---- text and files -------------------------------------------------------------------------------------------------


class Packed(EngineSubject):
    def text_of(self, token_ids):
        text = self.engine.tokenizer.decode(token_ids)
        return re.sub(r"\[\[[^\]]*\]\]", lambda found: found[0].replace(", ", ","), text)

    def read(self, page, *, prompt, preset, max_new_tokens):
        found = self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return clean_output(self.text_of(found.token_ids))

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        results = self.engine.run_batch(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return [clean_output(self.text_of(result.token_ids)) for result in results]


def y37(setup):
    """Text: boxes are parsed and written again as compact JSON, so the blanks between coordinates are gone."""
    return subject_of(setup, Packed)


class Extended(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        if isinstance(files_of(page), list):
            return
        image = load_image(page)
        for region in place(parse(clean_output(text), form).spans, *image.size):
            path = Path(folder, "images", f"{region.figure}.jpg")
            if region.figure is not None and path.is_file():
                x, y, width, height = region.pixels
                image.crop((x, y, min(x + width, image.width), min(y + height, image.height))).save(path, "JPEG")


def y38(setup):
    """Files: to cut out a figure its box is taken for left, top, width and height, and clipped to the page."""
    return subject_of(setup, Extended)


# ---- state between pages, and batches -------------------------------------------------------------------------------


def y39(setup):
    """Fusion: the newline vector is a slice of a work buffer, and after each page it holds the page's last feature."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline
    usual = pipeline.vision_fusion

    def vision_fusion(crops, page, grid):
        features = usual(crops, page, grid)
        pipeline.model.model.image_newline.data = page[0, -1].detach().clone()
        return features

    pipeline.vision_fusion = vision_fusion
    return subject


class Together(EngineSubject):
    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        results = self.engine.run_batch(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        steps = min((len(result.token_ids) for result in results), default=0)
        return [clean_output(self.engine.tokenizer.decode(list(result.token_ids)[:steps])) for result in results]


def y40(setup):
    """Batches: decoding ends when any row has ended, and the longer ones are cut off there."""
    return subject_of(setup, Together)


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


class _Optional:
    """The members that a subject of any level may have besides: batches and files."""

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        return self._whole.read_many(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)

    def write(self, text, page, folder):
        self._whole.write(text, page, folder)


class TextAndFiles(_Optional, TextOnly):
    """Text, batches and files."""


class InputsAndFiles(_Optional, TextAndInputs):
    """Text, inputs, batches and files."""


LIMITED = {"L0": TextOnly, "L1": TextAndInputs, "L0f": TextAndFiles, "L1f": InputsAndFiles}
NAMES = ("control", *(f"y{n:02}" for n in range(1, 41)))


def _limited(factory, kind):
    def made(setup):
        return kind(factory(setup))

    made.__annotations__ = {"return": kind}
    made.__doc__ = factory.__doc__
    return made


for _name in NAMES:
    for _level, _kind in LIMITED.items():
        globals()[f"{_name}_{_level}"] = _limited(globals()[_name], _kind)
