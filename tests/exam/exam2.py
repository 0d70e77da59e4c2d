"""Forty mistakes of ports of DeepSeek-OCR, one a subject factory: ``--subject=exam2:x01``. Only instances are changed.

``control`` has none. Each exists at lower levels too, whatever ``--level`` says: ``x01_L0`` offers ``read`` alone,
``x01_L1`` ``read`` and ``inputs``; ``x01_L0f`` and ``x01_L1f`` have the optional ``read_many`` and ``write`` besides.
"""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
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
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.pipeline import DecodeState, pick
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sam import relative_table, resize_grid
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


# ---- image: decoding ------------------------------------------------------------------------------------------------


def x01(setup):
    """Decoding: pages are decoded to RGB565, a phone's bitmap format, so levels keep 5, 6 and 5 bits."""

    def load(source):
        levels = np.array(load_image(source))
        red, green, blue = levels[..., 0] >> 3, levels[..., 1] >> 2, levels[..., 2] >> 3
        wide = np.stack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2], axis=-1)
        return Image.fromarray(wide.astype(np.uint8))

    return with_inputs(subject_of(setup), load=load)


def x02(setup):
    """EXIF: the pixels are turned, but the grid of crops comes from the width and height in the file's header."""

    def grid_of(page, preset, source):
        if isinstance(source, Image.Image):
            return preset.grid(*source.size)
        with Image.open(source if not isinstance(source, bytes) else io.BytesIO(source)) as file:
            return preset.grid(*file.size)

    return with_inputs(subject_of(setup), grid_of=grid_of)


def x03(setup):
    """Modes: of a palette image the indices are taken for grey levels; other modes are converted as they should be."""

    def load(source):
        try:
            opened = io.BytesIO(source) if isinstance(source, bytes) else source
            raw = source if isinstance(source, Image.Image) else Image.open(opened)
        except Exception:  # load_image says what is wrong
            return load_image(source)
        if raw.mode != "P":
            return load_image(source)
        indices = Image.fromarray(np.array(raw))
        return load_image(indices)

    return with_inputs(subject_of(setup), load=load)


# ---- image: resizing, padding, grids, pixels ------------------------------------------------------------------------


def in_linear_light(image, size):
    """Resize after undoing sRGB's curve, and apply the curve again."""
    if image.size == tuple(size):
        return image
    channels = []
    for channel in image.split():
        level = np.asarray(channel, dtype=np.float32) / 255
        linear = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4).astype(np.float32)
        small = np.asarray(Image.fromarray(linear, "F").resize(size, Image.BICUBIC)).clip(0, 1)
        back = np.where(small <= 0.0031308, small * 12.92, 1.055 * small ** (1 / 2.4) - 0.055)
        channels.append(Image.fromarray((back * 255 + 0.5).astype(np.uint8), "L"))
    return Image.merge("RGB", channels)


def contained(page, side):
    """Return the size of a page within a square, as Pillow computes it."""
    width, height = page.size
    if width == height:
        return side, side
    if width > height:
        return side, round(height / width * side)
    return round(width / height * side), side


def on_grey(small, side, offset):
    view = Image.new("RGB", (side, side), GREY)
    view.paste(small, offset)
    return view


def x04(setup):
    """Resizing: all of it is done in linear light (sRGB's curve undone and applied again), not on the levels."""

    def cut(page, grid, px):
        return tiles(in_linear_light(page, (grid[0] * px, grid[1] * px)), grid, px)

    def whole(page, preset):
        side = preset.view_size
        if preset.is_squashed:
            return in_linear_light(page, (side, side))
        global_view(page, preset)  # refuses what vanishes
        size = contained(page, side)
        small = in_linear_light(page, size)
        return on_grey(small, side, tuple(round((side - one) * 0.5) for one in size))

    return with_inputs(subject_of(setup), cut=cut, whole=whole)


def x05(setup):
    """Global view: a page smaller than the view is not enlarged; it is centred at its own size between grey bars."""

    def whole(page, preset):
        side = preset.view_size
        if preset.is_squashed or max(page.size) >= side:
            return global_view(page, preset)
        return on_grey(page, side, tuple(round((side - one) * 0.5) for one in page.size))

    return with_inputs(subject_of(setup), whole=whole)


def x06(setup):
    """Padding: the page's place between the bars is rounded down to whole patches of 16 px, so it is not centred."""

    def whole(page, preset):
        side = preset.view_size
        if preset.is_squashed:
            return global_view(page, preset)
        global_view(page, preset)
        size = contained(page, side)
        return on_grey(page.resize(size), side, tuple(round((side - one) * 0.5) // 16 * 16 for one in size))

    return with_inputs(subject_of(setup), whole=whole)


def x07(setup):
    """Grid: candidates that need more than 1,024 image tokens are left out, such as 4x2 and 3x3."""

    def grid_of(page, preset, source):
        tiling, (width, height) = preset.tiling, page.size
        if not preset.crop or (width <= tiling.crop_px and height <= tiling.crop_px):
            return 1, 1
        best, least = (1, 1), math.inf
        for grid in tiling.grids:
            if image_token_count(preset, grid) > 1024:
                continue
            distance = abs(width / height - grid[0] / grid[1])
            more_than_half = width * height > 0.5 * tiling.crop_px**2 * grid[0] * grid[1]
            if distance < least or (distance == least and more_than_half):
                best, least = grid, distance
        return best

    return with_inputs(subject_of(setup), grid_of=grid_of)


def x08(setup):
    """Pixels: normalised pixels pass through int8 with the scale 1/127, the input type of an accelerator."""

    def pixels(image):
        return (float_pixels(image) * 127).round().clamp(-127, 127).div(127).bfloat16()

    return with_inputs(subject_of(setup), pixels=pixels)


# ---- prompt and tokenizer -------------------------------------------------------------------------------------------


def x09(setup):
    """Tokenizer: ``ignore_merges`` of tokenizer.json is not read, so words that no merges make fall into characters."""
    subject = subject_of(setup)
    path = Path(resolve(setup.checkpoint).folder or "", "tokenizer.json")
    if not path.is_file():
        return subject
    described = json.loads(path.read_text(encoding="utf-8"))
    described["model"]["ignore_merges"] = False
    backend = tokenizers.Tokenizer.from_str(json.dumps(described))

    def ids_of(tokenizer, prompt, counts):
        return usual_ids(tokenizer, prompt, counts, lambda text: backend.encode(text, add_special_tokens=False).ids)

    return with_inputs(subject, ids_of=ids_of)


def x10(setup):
    """Prompt: it is padded on the left with <pad> to a multiple of 32 ids (static shapes), and the pads are not masked."""

    def ids_of(tokenizer, prompt, counts):
        ids, mask = usual_ids(tokenizer, prompt, counts)
        missing = -len(ids) % 32
        return [tokenizer.special.pad] * missing + ids, [False] * missing + mask

    return with_inputs(subject_of(setup), ids_of=ids_of)


# ---- SAM ------------------------------------------------------------------------------------------------------------


def x11(setup):
    """SAM: the resized table of absolute positions overwrites the table, so a view after crops gets it shrunk and enlarged."""
    subject = subject_of(setup)
    sam = sam_of(subject)

    def forward(pixels):
        x = sam.patch_embed(pixels)
        sam.pos_embed.data = resize_grid(sam.pos_embed[0], x.shape[1])[None].clone()
        x = x + sam.pos_embed[0]
        for block in sam.blocks:
            x = block(x)
        return sam.net_3(sam.net_2(sam.neck(x.permute(0, 3, 1, 2))))

    sam.forward = forward
    return subject


def x12(setup):
    """SAM: windows are padded on all four sides (the padding halved), not at the right and the bottom alone."""
    subject = subject_of(setup)

    def attend_of(block):
        def attend(x):
            batch, height, width, channels = x.shape
            size = block.window
            top, left = (-height % size) // 2, (-width % size) // 2
            x = F.pad(x, (0, 0, left, -width % size - left, top, -height % size - top))
            rows, columns = x.shape[1] // size, x.shape[2] // size
            x = x.view(batch, rows, size, columns, size, channels).transpose(2, 3).reshape(-1, size, size, channels)
            x = block.attn(x).view(batch, rows, columns, size, size, channels).transpose(2, 3)
            x = x.reshape(batch, rows * size, columns * size, channels)
            return x[:, top : top + height, left : left + width]

        return attend

    for block in sam_of(subject).blocks:
        if block.window:
            block.attend = attend_of(block)
    return subject


def position_bias_of(q, height, width, rows, columns):
    grid = q.reshape(-1, height, width, q.shape[-1])
    by_row = torch.einsum("bhwd,hkd->bhwk", grid, rows).reshape(*q.shape[:3], height, 1)
    by_column = torch.einsum("bhwd,wkd->bhwk", grid, columns).reshape(*q.shape[:3], 1, width)
    return (by_row + by_column).flatten(3)


def x13(setup):
    """SAM: the bias of relative positions is made of the first head's queries and used for all heads."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:

        def position_bias(q, height, width, usual=block.attn.position_bias):
            return usual(q[:, :1], height, width).expand(-1, q.shape[1], -1, -1)

        block.attn.position_bias = position_bias
    return subject


def x14(setup):
    """SAM: global layers run queries in chunks of 16 rows of patches, and each chunk's row offsets begin at row 0."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        if block.window:
            continue

        def position_bias(q, height, width, attn=block.attn):
            rows, columns = relative_table(attn.rel_pos_h, height), relative_table(attn.rel_pos_w, width)
            at = torch.arange(height, device=q.device) % 16
            return position_bias_of(q, height, width, rows[at], columns)

        block.attn.position_bias = position_bias
    return subject


def x15(setup):
    """SAM's neck: its 3x3 convolution pads by repeating the outermost features, not with zeros."""
    subject = subject_of(setup)
    conv = sam_of(subject).neck[2]
    conv.forward = lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), conv.weight)
    return subject


def x16(setup):
    """SAM: the first strided convolution (net_2) is a true convolution, its kernels turned by 180 degrees."""
    subject = subject_of(setup)
    conv = sam_of(subject).net_2
    conv.forward = lambda x: F.conv2d(x, conv.weight.flip(2, 3), stride=2, padding=1)
    return subject


# ---- CLIP -----------------------------------------------------------------------------------------------------------


def x17(setup):
    """CLIP: where the grid of positions is resized, as for crops, it comes out with rows and columns exchanged."""
    subject = subject_of(setup)
    embeddings = clip_of(subject).embeddings

    def forward(sam):
        batch, width, side, _ = sam.shape
        table = embeddings.position_embedding.weight
        grid = math.isqrt(len(table) - 1)
        of_grid = table[1:].view(grid, grid, width)
        if side != grid:
            of_grid = resize_grid(of_grid, side).transpose(0, 1)
        class_token = embeddings.class_embedding.expand(batch, 1, -1)
        tokens = torch.cat([class_token, sam.flatten(2).transpose(1, 2)], dim=1)
        return tokens + torch.cat([table[:1], of_grid.reshape(-1, width)])

    embeddings.forward = forward
    return subject


def x18(setup):
    """CLIP: the norm before the layers (pre_layrnorm) is applied to the image's tokens, not to the class token."""
    subject = subject_of(setup)
    norm = clip_of(subject).pre_layrnorm
    usual = norm.forward
    norm.forward = lambda x: torch.cat([x[:, :1], usual(x[:, 1:])], dim=1)
    return subject


def x19(setup):
    """CLIP: attention pads the sequence with zeros to a multiple of 16 (101 to 112, 257 to 272) and does not mask that."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:

        def forward(x, attn=layer.self_attn):
            batch, real, _ = x.shape
            x = F.pad(x, (0, 0, 0, -real % 16))
            qkv = attn.qkv_proj(x).view(batch, x.shape[1], 3, attn.heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            out = F.scaled_dot_product_attention(q, k, v)
            return attn.out_proj(out.transpose(1, 2).reshape(batch, x.shape[1], -1)[:, :real])

        layer.self_attn.forward = forward
    return subject


def x20(setup):
    """CLIP: quick GELU is a table over [-6, 6], and larger values are taken for 6."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:

        def forward(x, mlp=layer.mlp):
            inner = mlp.fc1(x).clamp(-6, 6)
            return mlp.fc2(inner * torch.sigmoid(1.702 * inner))

        layer.mlp.forward = forward
    return subject


# ---- projector and fusion -------------------------------------------------------------------------------------------


def x21(setup):
    """Projector: SAM's half of each token is read column by column, CLIP's row by row."""
    subject = subject_of(setup)
    model = subject.engine.model

    def projector(clip, sam):
        halves = [clip[:, 1:], sam.transpose(2, 3).flatten(2).transpose(1, 2)]
        return model.model.projector(torch.cat(halves, dim=-1))

    model.projector = projector
    return subject


def x22(setup):
    """Fusion: the crops end with the separator too, in the place of their last row's newline."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline
    usual = pipeline.vision_fusion

    def vision_fusion(crops, page, grid):
        features = usual(crops, page, grid)
        if crops is not None:
            side = math.isqrt(page.shape[-2])
            end = len(features) - (side * (side + 1) + 1)
            features = features.clone()
            features[end - 1] = pipeline.model.separator
        return features

    pipeline.vision_fusion = vision_fusion
    return subject


def kept_of(whole):
    """Return which rows and columns of tokens of a global view show more than its bars."""
    grey = torch.tensor(127.0).div_(255).sub_(0.5).div_(0.5).bfloat16().to(whole)
    seen = (whole != grey).any(0)
    return [F.max_pool1d(seen.any(axis)[None].float(), 64, ceil_mode=True)[0] > 0 for axis in (1, 0)]


def x23(setup):
    """Fusion: rows and columns of the global view that show nothing but its bars are left out ("unpad"), ids and all."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline
    usual = pipeline.vision

    def fewer(whole):
        rows, columns = kept_of(whole)
        return len(rows) * (len(columns) + 1) - int(rows.sum()) * (int(columns.sum()) + 1)

    def counts_of(preset, grids, wholes):
        return [image_token_count(preset, grid) - fewer(whole) for grid, whole in zip(grids, wholes)]

    def vision(inputs):
        visions = usual(inputs)
        left_out = [fewer(whole) for whole in inputs.images_ori] if visions else []
        full = sum(len(one.vision_fusion) for one in visions)
        if not visions or inputs.image_tokens != full - sum(left_out):
            return visions
        found = []
        for one, whole in zip(visions, inputs.images_ori):
            rows, columns = kept_of(whole)
            kept = (rows[:, None] & F.pad(columns, (0, 1), value=True)[None]).flatten()
            start = len(one.vision_fusion) - len(kept) - 1
            kept = F.pad(F.pad(kept, (start, 0), value=True), (0, 1), value=True)
            found.append(replace(one, vision_fusion=one.vision_fusion[kept]))
        return found

    pipeline.vision = vision
    return with_inputs(subject, counts_of=counts_of)


def x24(setup):
    """Fusion: features go from the vision process to the decoder's through a buffer of bfloat16, in a float32 run too."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline
    usual = pipeline.vision_fusion

    def vision_fusion(crops, page, grid):
        features = usual(crops, page, grid)
        return features.bfloat16().to(features.dtype)

    pipeline.vision_fusion = vision_fusion
    return subject


def x25(setup):
    """Fusion: the prompt is embedded in chunks of 512 ids, and each chunk takes the features from the first one on."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline

    def prefill_with(inputs, features, *, all_logits=False):
        with pipeline.running("vision_fusion"):
            embeds = pipeline.model.embed(inputs.input_ids).clone()
            for start in range(0, embeds.shape[1], 512):
                mask = inputs.images_seq_mask[0, start : start + 512]
                if features is not None:
                    embeds[0, start : start + 512][mask] = features[: int(mask.sum())].to(embeds.dtype)
        return decoded(pipeline, embeds, all_logits)

    pipeline.prefill_with = prefill_with
    return subject


# ---- decoder --------------------------------------------------------------------------------------------------------


def x26(setup):
    """Decoder: the table of cosines and sines has 768 rows, and later positions take its last row."""
    subject = subject_of(setup)
    core = subject.engine.model.model

    def decode(x, cache):
        new, positions = x.shape[1], cache.positions(x.shape[1], x.device)
        rope = Rope(core.inv_freq, positions.clamp(max=767), x.dtype)
        rope.positions = positions
        for layer in core.layers:
            x = layer(x, rope, cache)
        cache.advance(new)
        return core.norm(x)

    core.decode = decode
    return subject


def x27(setup):
    """Decoder: attention's scores are capped softly, 50 * tanh(score / 50), as in Gemma 2."""
    subject = subject_of(setup)

    def attend(q, k, v, lengths):
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        scores = (q @ k.transpose(2, 3)).div_(math.sqrt(q.shape[-1]))
        scores = 50 * torch.tanh(scores / 50)
        at = torch.arange(k.shape[2], device=q.device)
        if lengths is not None:
            visible = (at < torch.tensor(lengths, device=q.device)[:, None])[:, None, None]
        else:
            visible = at <= at[k.shape[2] - q.shape[2] :, None]
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v

    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


def x28(setup):
    """Experts: one whose weight is below a tenth of the token's largest is skipped, to save work."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):

        def forward(x, usual=mlp.gate.forward):
            chosen, weights = usual(x)
            return chosen, weights * (weights >= 0.1 * weights.amax(dim=-1, keepdim=True))

        mlp.gate.forward = forward
    return subject


def x29(setup):
    """Experts: the grouped product stops one row early, so the last token of the last expert in use gets nothing of it."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):

        def run_looped(tokens, chosen, mlp=mlp, usual=mlp.run_looped):
            out = usual(tokens, chosen)
            if len(tokens) > 1:
                out[chosen.flatten().argsort(stable=True)[-1]] = 0
            return out

        mlp.run_looped = run_looped
    return subject


def x30(setup):
    """Experts: the shared experts' weights are fp8 (e4m3) without a scale and without saying so."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):
        shared = mlp.shared_experts
        for linear in (shared.gate_proj, shared.up_proj, shared.down_proj):
            linear.weight.data = linear.weight.data.to(torch.float8_e4m3fn).to(linear.weight.dtype)
    return subject


def x31(setup):
    """Decoder: the last norm is split over two devices, and each half is scaled by its own mean square."""
    subject = subject_of(setup)
    norm = subject.engine.model.model.norm

    def forward(x):
        halves = [half * torch.rsqrt(half.pow(2).mean(-1, keepdim=True) + norm.eps) for half in x.float().chunk(2, -1)]
        return norm.weight * torch.cat(halves, dim=-1).to(x.dtype)

    norm.forward = forward
    return subject


def x32(setup):
    """Head: it computes a multiple of 64 logits, rounded down, and the logits of the last ids stay 0."""
    subject = subject_of(setup)
    head = subject.engine.model.lm_head
    usual = head.forward

    def forward(x):
        logits = usual(x)
        logits[..., logits.shape[-1] // 64 * 64 :] = 0
        return logits

    head.forward = forward
    return subject


# ---- cache and steps ------------------------------------------------------------------------------------------------


class Paged(KVCache):
    """Blocks of 64 positions; a step that needs a new block writes before there is one."""

    def append(self, layer, keys, values, positions):
        if keys.shape[2] == 1:
            kept = [one.clone() for one in (keys, values)]
            for row, seen in enumerate(self.seen):
                if seen and seen % 64 == 0:
                    kept[0][row] = kept[1][row] = 0
            keys, values = kept
        return super().append(layer, keys, values, positions)


def x33(setup):
    """Cache: a step whose position begins a block of 64 writes before the block is there; its key and value stay zeros."""
    subject = subject_of(setup)
    model = subject.engine.model
    model.new_cache = lambda: Paged(model.arch.decoder.num_hidden_layers, policy=model.family.cache)
    model.join_caches = Paged.join
    return subject


# ---- choice of tokens, and stop -------------------------------------------------------------------------------------


class Rounded(OwnLoop):
    def choose(self, logits, banned, prompt, tokens):
        return pick(logits.bfloat16(), [banned])[0]


def x34(setup):
    """Choice: the sampler rounds the logits to bfloat16, so near ties are equal there and the lowest id of them is taken."""
    return subject_of(setup, Rounded)


class AtLeast(OwnLoop):
    def choose(self, logits, banned, prompt, tokens):
        if len(tokens) < 100:
            banned = [*banned, self.engine.policy.eos_id]
        return pick(logits, [banned])[0]


def x35(setup):
    """Stop: the EOS is not allowed before 100 new tokens (the server's min_tokens)."""
    return subject_of(setup, AtLeast)


class ShortGrams(OwnLoop):
    def ban_of(self, prompt):
        return replace(self.engine.policy, no_repeat_ngram_size=3, ngram_window=20).ban(prompt)


def x36(setup):
    """N-grams: the 20 is taken for the window, so no 3 tokens may repeat within the last 20."""
    return subject_of(setup, ShortGrams)


class Remembers(OwnLoop):
    def __init__(self, engine):
        super().__init__(engine)
        self.written = []

    def ban_of(self, prompt):
        return self.engine.policy.ban([*self.written, *prompt])

    def ended(self, tokens):
        self.written += tokens


def x37(setup):
    """N-grams: those written on earlier pages are not forgotten, so a page may not repeat 20 tokens of an earlier one."""
    return subject_of(setup, Remembers)


# ---- batches --------------------------------------------------------------------------------------------------------


class LongestRow(KVCache):
    """Rows of a batch share the longest row's position; each still writes into its own next slot."""

    def positions(self, new, device):
        if not self.is_ragged:
            return super().positions(new, device)
        return torch.full((len(self.seen), 1), max(self.seen), device=device)

    def append(self, layer, keys, values, positions):
        if self.is_ragged:
            positions = torch.tensor(self.seen, device=keys.device)[:, None]
        return super().append(layer, keys, values, positions)


def x38(setup):
    """Batches: steps rotate all rows by the longest row's position, so shorter pages jump ahead."""
    subject = subject_of(setup)
    model = subject.engine.model
    model.join_caches = LongestRow.join
    return subject


# ---- text and files -------------------------------------------------------------------------------------------------


class OneLine(EngineSubject):
    def text_of(self, token_ids):
        return re.sub(r"\n{2,}", "\n", self.engine.tokenizer.decode(token_ids))

    def read(self, page, *, prompt, preset, max_new_tokens):
        found = self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return clean_output(self.text_of(found.token_ids))

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        results = self.engine.run_batch(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return [clean_output(self.text_of(result.token_ids)) for result in results]


def x39(setup):
    """Text: several line breaks in a row become one, so the empty lines between the regions are gone."""
    return subject_of(setup, OneLine)


class Margins(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        if isinstance(files_of(page), list):
            return
        image = load_image(page)
        for region in place(parse(clean_output(text), form).spans, *image.size):
            path = Path(folder, "images", f"{region.figure}.jpg")
            if region.figure is not None and path.is_file():
                x1, y1, x2, y2 = region.pixels
                grown = (max(0, x1 - 8), max(0, y1 - 8), min(image.width, x2 + 8), min(image.height, y2 + 8))
                image.crop(grown).save(path, "JPEG")


def x40(setup):
    """Files: figures are cut out with a margin of 8 px around their boxes."""
    return subject_of(setup, Margins)


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
NAMES = ("control", *(f"x{n:02}" for n in range(1, 41)))


def _limited(factory, kind):
    def made(setup):
        return kind(factory(setup))

    made.__annotations__ = {"return": kind}
    made.__doc__ = factory.__doc__
    return made


for _name in NAMES:
    for _level, _kind in LIMITED.items():
        globals()[f"{_name}_{_level}"] = _limited(globals()[_name], _kind)
