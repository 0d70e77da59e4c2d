"""Forty mistakes of ports of DeepSeek-OCR, one a subject factory: ``--subject=exam4:z01``. Only instances are changed.

``control`` has none. Each exists at lower levels too, whatever ``--level`` says: ``z01_L0`` offers ``read`` alone,
``z01_L1`` ``read`` and ``inputs``; ``z01_L0f`` and ``z01_L1f`` have the optional ``read_many`` and ``write`` besides.
"""

import io
import math
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
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.pipeline import DecodeState, pick
from pytest_dsocr.layers.attention import eager, repeat_heads
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sam import join_windows, resize_line, split_windows
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


# ---- inputs ---------------------------------------------------------------------------------------------------------


def z01(setup):
    """Decoding: the server keeps the upload as a temporary .jpg (Pillow's default quality) and reads the page from that."""

    def load(source):
        kept = io.BytesIO()
        load_image(source).save(kept, "JPEG")
        return Image.open(kept).convert("RGB")

    return with_inputs(subject_of(setup), load=load)


def linear_light(image, size):
    """Resize in linear light: sRGB to linear, bicubic, and back."""
    done = []
    for channel in image.split():
        level = np.asarray(channel).astype(np.float32) / 255
        linear = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4).astype(np.float32)
        small = np.asarray(Image.fromarray(linear).resize(size)).clip(0, 1)
        back = np.where(small <= 0.0031308, small * 12.92, 1.055 * small ** (1 / 2.4) - 0.055)
        done.append(Image.fromarray((back * 255 + 0.5).astype(np.uint8)))
    return Image.merge("RGB", done)


def contained(page, side):
    """Return the size in which a page fits the view, as Pillow's contain rounds it."""
    width, height = page.size
    if width > height:
        return side, round(height / width * side)
    return round(width / height * side), side


def resized_by(resize):
    """Return what cuts crops and what makes the whole view, with another function that resizes."""

    def cut(page, grid, px):
        return tiles(resize(page, (grid[0] * px, grid[1] * px)), grid, px)

    def whole(page, preset):
        side = preset.view_size
        if preset.is_squashed:
            return resize(page, (side, side))
        size = contained(page, side)
        view = Image.new("RGB", (side, side), GREY)
        view.paste(resize(page, size), tuple(round((side - one) * 0.5) for one in size))
        return view

    return {"cut": cut, "whole": whole}


def z02(setup):
    """Resizing: done in linear light, as libvips and some image servers do, not on the sRGB levels."""
    return with_inputs(subject_of(setup), **resized_by(linear_light))


def z03(setup):
    """Crops: the page keeps its aspect inside the grid and is padded with grey (LLaVA-NeXT), not stretched over it."""

    def cut(page, grid, px):
        return tiles(ImageOps.pad(page, (grid[0] * px, grid[1] * px), color=GREY), grid, px)

    return with_inputs(subject_of(setup), cut=cut)


def z04(setup):
    """Grid: min() by the distance of aspect ratios takes the first of equals, and a large page gets no larger grid."""

    def grid_of(page, preset, source):
        width, height = page.size
        if not preset.crop or max(width, height) <= preset.tiling.crop_px:
            return preset.grid(width, height)
        return min(preset.tiling.grids, key=lambda grid: abs(width / height - grid[0] / grid[1]))

    return with_inputs(subject_of(setup), grid_of=grid_of)


def z05(setup):
    """Pixels: float32 becomes bfloat16 by dropping the lower 16 bits, without rounding."""

    def pixels(image):
        bits = float_pixels(image).view(torch.int32)
        return (bits & ~0xFFFF).view(torch.float32).bfloat16()

    return with_inputs(subject_of(setup), pixels=pixels)


def opencv_cubic(image, size):
    """Resize as OpenCV's INTER_CUBIC: a = -0.75, and four taps also where the image shrinks."""
    planes = level_tensor(image).float()[None]
    out = F.interpolate(planes, size=(size[1], size[0]), mode="bicubic", align_corners=False)
    return Image.fromarray(out.round().clamp(0, 255).byte()[0].permute(1, 2, 0).contiguous().numpy())


def z06(setup):
    """Resizing: by OpenCV's INTER_CUBIC in place of Pillow's antialiased bicubic, view and crops."""
    return with_inputs(subject_of(setup), **resized_by(opencv_cubic))


def z07(setup):
    """Prompt: each text piece is stripped before it is encoded, so the line break behind the image is lost. Head: the
    wrapper of the head applies the final norm a second time."""
    subject = subject_of(setup)
    model = subject.engine.model
    norm, head = model.model.norm, model.lm_head
    head.forward = lambda x: F.linear(norm.forward(x), head.weight).float()

    def ids_of(tokenizer, prompt, counts):
        return usual_ids(tokenizer, prompt, counts, lambda text: tokenizer.encode(text.strip()))

    return with_inputs(subject, ids_of=ids_of)


def z08(setup):
    """Prompt: BOS is put in front of the ids after the image's mask was made, so the mask lies one place too early."""

    def ids_of(tokenizer, prompt, counts):
        ids, mask = usual_ids(tokenizer, prompt, counts)
        return ids, [*mask[1:], False]

    return with_inputs(subject_of(setup), ids_of=ids_of)


class Windows(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        path = Path(folder, form.result_file)
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def z09(setup):
    """Decoding: white margins are cut off the page first (Nougat's crop_margin). Files: result.mmd is written in text
    mode on Windows, with CR LF."""

    def load(source):
        page = load_image(source)
        grey = np.array(page.convert("L")).astype(np.uint8)
        low, high = int(grey.min()), int(grey.max())
        if low == high:
            return page
        dark = (grey.astype(np.float32) - low) / (high - low) * 255 < 200
        rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
        return page.crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))

    return with_inputs(subject_of(setup, Windows), load=load)


# ---- vision ---------------------------------------------------------------------------------------------------------


def z10(setup):
    """SAM: absolute positions are resized for crops with align_corners (corners on corners, not half-pixel centres)."""
    subject = subject_of(setup)
    sam = sam_of(subject)

    def forward(pixels):
        x = sam.patch_embed(pixels)
        table = sam.pos_embed[0]
        if len(table) != x.shape[1]:
            planes = table.permute(2, 0, 1)[None]
            size = tuple(x.shape[1:3])
            resized = F.interpolate(planes, size=size, mode="bicubic", antialias=True, align_corners=True)
            table = resized[0].permute(1, 2, 0)
        x = x + table
        for block in sam.blocks:
            x = block(x)
        return sam.net_3(sam.net_2(sam.neck(x.permute(0, 3, 1, 2))))

    sam.forward = forward
    return subject


def z11(setup):
    """SAM: relative positions are looked up by key minus query, not by query minus key."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:

        def position_bias(q, height, width, attn=block.attn):
            def table(line, size):
                at = torch.arange(size)
                return resize_line(line, 2 * size - 1)[at[None, :] - at[:, None] + size - 1]

            grid = q.reshape(-1, height, width, q.shape[-1])
            by_row = torch.einsum("bhwd,hkd->bhwk", grid, table(attn.rel_pos_h, height))
            by_column = torch.einsum("bhwd,wkd->bhwk", grid, table(attn.rel_pos_w, width))
            both = by_row.reshape(*q.shape[:3], height, 1) + by_column.reshape(*q.shape[:3], 1, width)
            return both.flatten(3)

        block.attn.position_bias = position_bias
    return subject


def z12(setup):
    """SAM: keys in a window's padding are masked out; the vendor's attention sees them."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        if not block.window:
            continue

        shown = {}

        def attend(x, block=block, shown=shown):
            real = split_windows(torch.ones(*x.shape[:3], 1), block.window)
            shown["keys"] = real.flatten(1)[:, None, None] != 0
            return join_windows(block.attn(split_windows(x, block.window)), *x.shape[1:3])

        def position_bias(q, height, width, usual=block.attn.position_bias, shown=shown):
            return usual(q, height, width).masked_fill(~shown["keys"], -torch.inf)

        block.attn.position_bias = position_bias
        block.attend = attend
    return subject


def z13(setup):
    """SAM: the neck's norms divide the sum of squares by channels minus one (the library's default of var)."""
    subject = subject_of(setup)
    for norm in (sam_of(subject).neck[1], sam_of(subject).neck[3]):

        def forward(x, norm=norm):
            centred = x - x.mean(dim=1, keepdim=True)
            normal = centred / torch.sqrt(x.var(dim=1, keepdim=True) + norm.eps)
            return normal * norm.weight[:, None, None] + norm.bias[:, None, None]

        norm.forward = forward
    return subject


def z14(setup):
    """SAM: the two strided convolutions are padded as SAME (right and below alone), not by one on each side."""
    subject = subject_of(setup)
    for convolution in (sam_of(subject).net_2, sam_of(subject).net_3):

        def forward(x, weight=convolution.weight):
            return F.conv2d(F.pad(x, (0, 1, 0, 1)), weight, stride=2)

        convolution.forward = forward
    return subject


def z15(setup):
    """CLIP: the loader asks for pre_layernorm and the checkpoint has pre_layrnorm, so it keeps ones and zeros."""
    subject = subject_of(setup)
    norm = clip_of(subject).pre_layrnorm
    norm.weight.data, norm.bias.data = torch.ones_like(norm.weight), torch.zeros_like(norm.bias)
    return subject


def z16(setup):
    """CLIP: the conversion folds 1 / sqrt(head) into the weight of q and leaves its bias as it was."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:
        bias = layer.self_attn.qkv_proj.bias.data.clone()
        width = len(bias) // 3
        bias[:width] *= math.sqrt(width // layer.self_attn.heads)  # the engine divides the sum by it
        layer.self_attn.qkv_proj.bias.data = bias
    return subject


class Numbered(EngineSubject):
    def write(self, text, page, folder):
        form = self.engine.family.form
        write_artifacts(text, page, folder, form)
        path = Path(folder, form.result_file)
        content = path.read_bytes().decode()
        found = sorted(Path(folder, "images").glob("*.jpg"), key=lambda one: -int(one.stem))
        for one in found:
            later = int(one.stem) + 1
            content = content.replace(f"](images/{one.name})", f"](images/{later}.jpg)")
            one.rename(one.with_name(f"{later}.jpg"))
        path.write_bytes(content.encode())


def z17(setup):
    """CLIP: the features are those of the last layer but one (LLaVA's hidden_states[-2]). Files: figures are numbered
    from 1, as are their links."""
    subject = subject_of(setup, Numbered)
    transformer = clip_of(subject).transformer

    def forward(x):
        states = [x]
        for layer in transformer.layers:
            states.append(layer(states[-1]))
        return states[-2]

    transformer.forward = forward
    return subject


def dynamic_int8(linear):
    """Return a linear layer as ONNX Runtime's dynamic quantisation makes it: one scale a tensor, uint8 and int8."""
    scale = linear.weight.data.abs().max() / 127
    weight = (linear.weight.data / scale).round() * scale

    def forward(x):
        low, high = x.min().clamp(max=0), x.max().clamp(min=0)
        step = (high - low) / 255
        zero = (-low / step).round()
        levels = ((x / step).round() + zero).clamp(0, 255)
        return F.linear((levels - zero) * step, weight, linear.bias)

    return forward


def z18(setup):
    """CLIP: the MLPs are quantised dynamically to 8 bits, with one scale for a whole tensor, unsaid."""
    subject = subject_of(setup)
    for layer in clip_of(subject).transformer.layers:
        for linear in (layer.mlp.fc1, layer.mlp.fc2):
            linear.forward = dynamic_int8(linear)
    return subject


def z19(setup):
    """Projector: CLIP's last token is dropped in place of its first, the class token."""
    subject = subject_of(setup)
    model = subject.engine.model

    def projector(clip, sam):
        return model.model.projector(torch.cat([clip[:, :-1], sam.flatten(2).transpose(1, 2)], dim=-1))

    model.projector = projector
    return subject


def z20(setup):
    """Fusion: in DeepSeek-VL2's order, page, separator, crops; not crops, page, separator."""
    subject = subject_of(setup)
    pipeline = subject.engine.pipeline

    def vision_fusion(crops, page, grid):
        newline, separator = pipeline.model.newline, pipeline.model.separator
        with pipeline.running("vision_fusion"):
            parts = [end_rows(square(page[0]), newline), separator[None]]
            if crops is not None:
                parts.append(end_rows(mosaic(crops, grid), newline))
            return torch.cat(parts)

    pipeline.vision_fusion = vision_fusion
    return subject


# ---- prefill --------------------------------------------------------------------------------------------------------


def turned_by(subject, turn):
    """Let the decoder rotate by ``turn(positions, cache)``; the cache's places stay."""
    core = subject.engine.model.model

    def decode(x, cache):
        new = x.shape[1]
        positions = cache.positions(new, x.device)
        rope = Rope(core.inv_freq, turn(positions, cache), x.dtype)
        rope.positions = positions
        for layer in core.layers:
            x = layer(x, rope, cache)
        cache.advance(new)
        return core.norm(x)

    core.decode = decode
    return subject


def z21(setup):
    """RoPE: positions are bfloat16 when they meet the frequencies, so above 256 they are rounded (to 2, 4, 8)."""
    return turned_by(subject_of(setup), lambda positions, cache: positions.bfloat16())


def z22(setup):
    """Norm: the decoder's RMSNorms use the 12-bit rsqrtps without a Newton step."""
    subject = subject_of(setup)
    core = subject.engine.model.model
    layers = decoder_of(subject)
    norms = [one for layer in layers for one in (layer.input_layernorm, layer.post_attention_layernorm)]
    for norm in (*norms, core.norm):

        def forward(x, norm=norm):
            root = torch.rsqrt(x.float().pow(2).mean(dim=-1, keepdim=True) + norm.eps)
            rough = ((root.view(torch.int32) + 0x400) & ~0x7FF).view(torch.float32)
            return norm.weight * (x.float() * rough).to(x.dtype)

        norm.forward = forward
    return subject


def z23(setup):
    """Attention: prefill goes in chunks of 512, and is_causal lays a later chunk's mask at the top left: its query i
    sees the keys 0 to i."""
    subject = subject_of(setup)

    def attend(q, k, v, lengths):
        if q.shape[2] <= 512 or q.shape[2] != k.shape[2]:
            return eager(q, k, v, lengths)
        parts, total = [], q.shape[2]
        for start in range(0, total, 512):
            end = min(start + 512, total)
            mask = torch.ones(end - start, end, dtype=torch.bool).tril()
            part, keys, values = q[:, :, start:end], k[:, :, :end], v[:, :, :end]
            keys, values = repeat_heads(keys, part), repeat_heads(values, part)
            parts.append(F.scaled_dot_product_attention(part, keys, values, attn_mask=mask))
        return torch.cat(parts, dim=2)

    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


def z24(setup):
    """Attention: the image's tokens see one another in both directions, as in PaliGemma and Gemma 3."""
    subject = subject_of(setup)
    pipeline, marks = subject.engine.pipeline, {}
    usual = pipeline.prefill_with

    def prefill_with(inputs, features, *, all_logits=False):
        marks["image"] = inputs.images_seq_mask[0]
        return usual(inputs, features, all_logits=all_logits)

    def attend(q, k, v, lengths):
        image = marks.get("image")
        if image is None or q.shape[2] == 1 or not q.shape[2] == k.shape[2] == len(image):
            return eager(q, k, v, lengths)
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        seen = torch.ones(len(image), len(image), dtype=torch.bool).tril() | (image[:, None] & image[None])
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        return scores.masked_fill_(~seen, -torch.inf).softmax(dim=-1) @ v

    pipeline.prefill_with = prefill_with
    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


def z25(setup):
    """Decoder: what goes from layer to layer is kept in float16, in a float32 run."""
    subject = subject_of(setup)
    for layer in decoder_of(subject):

        def forward(x, rope, cache, usual=layer.forward):
            return usual(x, rope, cache).half().to(x.dtype)

        layer.forward = forward
    return subject


def z26(setup):
    """Experts: each has room for 1.25 times its even share of a call's tokens, and later tokens' visits are dropped."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):

        def forward(x, gate=mlp.gate, usual=mlp.gate.forward, experts=len(mlp.experts)):
            chosen, weights = usual(x)
            room = math.ceil(1.25 * chosen.numel() / experts)
            visits = F.one_hot(chosen.flatten(), experts).cumsum(dim=0)
            rank = visits.gather(1, chosen.flatten()[:, None]).view_as(chosen)
            return chosen, weights * (rank <= room)

        mlp.gate.forward = forward
    return subject


def z27(setup):
    """Crops: cut by OpenCV and left in BGR, where the page's view is RGB. Experts: the converter takes the shared
    experts' first half alone, as one expert."""
    subject = subject_of(setup)
    for mlp in experts_of(subject):
        weight = mlp.shared_experts.down_proj.weight
        kept = weight.data.clone()
        kept[:, weight.shape[1] // 2 :] = 0
        weight.data = kept

    def cut(page, grid, px):
        return [Image.merge("RGB", tile.split()[::-1]) for tile in stretched(page, grid, px)]

    return with_inputs(subject, cut=cut)


def z28(setup):
    """Fusion: the loader asks for view_separator and the checkpoint has view_seperator, so the separator stays zero.
    Decoder: the dense layer's MLP has GELU, the library's default, in place of SiLU."""
    subject = subject_of(setup)
    core = subject.engine.model.model
    core.view_seperator.data = torch.zeros_like(core.view_seperator)
    mlp = decoder_of(subject)[0].mlp
    mlp.forward = lambda x: mlp.down_proj(F.gelu(mlp.gate_proj(x)) * mlp.up_proj(x))
    return subject


def z29(setup):
    """RoPE: the converter permutes the rows of q and k for interleaved pairs, and the engine rotates by halves."""
    subject = subject_of(setup)
    for layer in decoder_of(subject):
        attn = layer.self_attn
        for linear in (attn.q_proj, attn.k_proj):
            rows = linear.weight.data.unflatten(0, (-1, 2, attn.head_dim // 2))
            linear.weight.data = rows.transpose(1, 2).flatten(0, 2).contiguous()
    return subject


# ---- steps and cache ------------------------------------------------------------------------------------------------


def with_cache(subject, kind):
    model = subject.engine.model
    model.new_cache = lambda: kind(model.arch.decoder.num_hidden_layers, policy=model.family.cache)
    model.join_caches = kind.join
    return subject


class Float8(KVCache):
    """Holds keys and values as float8 e4m3 without a scale; prefill attends to those at hand."""

    def append(self, layer, keys, values, positions):
        rounded = [one.clamp(-448, 448).to(torch.float8_e4m3fn).to(one.dtype) for one in (keys, values)]
        found = super().append(layer, *rounded, positions)
        return (keys, values) if not any(self.seen) else found


def z30(setup):
    """Cache: keys and values are kept in float8 (e4m3) without a scale, unsaid; prefill attends to the exact ones."""
    return with_cache(subject_of(setup), Float8)


class Blocks(KVCache):
    """Has blocks of 128 places; a step's block is taken, and zeroed, after the step has written."""

    def append(self, layer, keys, values, positions):
        if any(self.seen):
            kept = torch.tensor([place % 128 != 0 for place in self.slots])[:, None, None, None]
            keys, values = keys * kept, values * kept
        return super().append(layer, keys, values, positions)


def z31(setup):
    """Cache: in steps a new block of 128 places is zeroed after its first token was written, so that one is lost."""
    return with_cache(subject_of(setup), Blocks)


def z32(setup):
    """SAM: the MLPs have the GELU of tanh. Steps: keys are padded with zeros to a multiple of 64, and the padding
    counts in the softmax with the score 0."""
    subject = subject_of(setup)
    for block in sam_of(subject).blocks:
        block.mlp.forward = lambda x, mlp=block.mlp: mlp.lin2(F.gelu(mlp.lin1(x), approximate="tanh"))

    def one_row(q, k, v):
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        padded = F.pad(scores, (0, -scores.shape[-1] % 64))
        return padded.softmax(dim=-1)[..., : scores.shape[-1]] @ v

    def attend(q, k, v, lengths):
        if q.shape[2] > 1:
            return eager(q, k, v, lengths)
        k, v = repeat_heads(k, q), repeat_heads(v, q)
        own = lengths or [k.shape[2]] * len(q)
        return torch.cat([one_row(q[i : i + 1], k[i : i + 1, :, :n], v[i : i + 1, :, :n]) for i, n in enumerate(own)])

    for layer in decoder_of(subject):
        layer.self_attn.attend = attend
    return subject


def while_stepping(subject):
    """Return a list that is not empty while a decode step runs."""
    pipeline, running = subject.engine.pipeline, []
    usual = pipeline._step

    def step(state, embeds):
        running.append(True)
        try:
            return usual(state, embeds)
        finally:
            running.clear()

    pipeline._step = step
    return running


def z33(setup):
    """Steps: the decode kernel sorts a token's experts by their number and leaves their weights in the old order."""
    subject = subject_of(setup)
    running = while_stepping(subject)
    for mlp in experts_of(subject):

        def forward(x, usual=mlp.gate.forward):
            chosen, weights = usual(x)
            return (chosen.sort(dim=-1).values, weights) if running else (chosen, weights)

        mlp.gate.forward = forward
    return subject


def z34(setup):
    """Steps: the captured graph reads a position that is written after its launch, so all steps but the first rotate
    by the position of the step before."""

    def turn(positions, cache):
        if positions.shape[1] > 1 or not all(cache.prompts):
            return positions
        late = torch.tensor([int(seen > prompt) for prompt, seen in zip(cache.prompts, cache.seen)])
        return positions - late[:, None]

    return turned_by(subject_of(setup), turn)


# ---- choice, stop, text, files --------------------------------------------------------------------------------------


class Twice(OwnLoop):
    def read(self, page, *, prompt, preset, max_new_tokens):
        engine = self.engine
        inputs = engine.prepare(page, prompt=prompt, preset=preset)
        policy = replace(engine.policy, max_new_tokens=max_new_tokens) if max_new_tokens else engine.policy
        asked = inputs.input_ids[0].tolist()
        state, ban, tokens = engine.prefill(inputs), self.ban_of(asked), []
        engine.decode_step(state, asked[-1])
        while len(tokens) < policy.room(len(asked)) and policy.eos_id not in tokens[-1:]:
            if tokens:
                engine.decode_step(state, tokens[-1])
            tokens.append(self.choose(state.logits, ban.banned(), asked, tokens))
            ban.push(tokens[-1])
        return clean_output(engine.tokenizer.decode(tokens))


def z35(setup):
    """Loop: the prompt's last token is in the cache after prefill, and the first step feeds it again."""
    return subject_of(setup, Twice)


class Sampled(OwnLoop):
    def choose(self, logits, banned, prompt, tokens):
        if not tokens:
            self.source = torch.Generator().manual_seed(0)
        logits = logits[0].clone()
        logits[list(banned)] = -torch.inf
        best = torch.topk(logits, 40)
        chances = (best.values / 0.8).softmax(dim=-1)
        return int(best.indices[torch.multinomial(chances, 1, generator=self.source)])


def z36(setup):
    """Choice: the server samples by its own default (temperature 0.8, top-k 40, seed 0) where greedy was asked for."""
    return subject_of(setup, Sampled)


class HeldBack(EngineSubject):
    """Streams; what could begin a stop string is held back until more comes."""

    def text_of(self, token_ids):
        text = self.engine.tokenizer.decode(token_ids)
        ended = self.engine.tokenizer.decode([self.engine.policy.eos_id])
        return text.removesuffix(ended)[:-2]

    def read(self, page, *, prompt, preset, max_new_tokens):
        found = self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return clean_output(self.text_of(found.token_ids))

    def read_many(self, pages, *, prompt, preset, max_new_tokens):
        results = self.engine.run_batch(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return [clean_output(self.text_of(result.token_ids)) for result in results]


def z37(setup):
    """Text: the stream holds back its last two characters in case they begin a stop string, and never sends them."""
    return subject_of(setup, HeldBack)


class FromView(EngineSubject):
    def write(self, text, page, folder):
        form, preset = self.engine.family.form, self.engine.family.preset("gundam")
        write_artifacts(text, page, folder, form)
        if isinstance(files_of(page), list):
            return
        image = load_image(page)
        view = global_view(image, preset)
        for region in place(parse(clean_output(text), form).spans, *view.size):
            path = Path(folder, "images", f"{region.figure}.jpg")
            if region.figure is not None and path.is_file():
                view.crop(region.pixels).save(path, "JPEG")


def z38(setup):
    """Files: figures are cut out of the padded 1,024 px view that the model saw, not out of the page."""
    return subject_of(setup, FromView)


# ---- state and batches ----------------------------------------------------------------------------------------------


class Reused(KVCache):
    """Finds the keys and values of an earlier prompt that began with the same ids."""

    found = ()
    places = 0

    def append(self, layer, keys, values, positions):
        if self.places and not any(self.seen):
            keys, values = keys.clone(), values.clone()
            keys[:, :, : self.places], values[:, :, : self.places] = self.found[layer]
        return super().append(layer, keys, values, positions)


def z39(setup):
    """State: the prefix cache compares ids alone, so a page takes over the last page's keys and values as far as their
    ids agree, image tokens included."""
    subject = with_cache(subject_of(setup), Reused)
    pipeline, model, last = subject.engine.pipeline, subject.engine.model, {}
    usual, usual_cache = pipeline.prefill_with, model.new_cache

    def prefill_with(inputs, features, *, all_logits=False):
        ids = inputs.input_ids[0].tolist()
        same = 0
        while same < min(len(ids) - 1, len(last.get("ids", ()))) and ids[same] == last["ids"][same]:
            same += 1

        def new_cache():
            cache = usual_cache()
            cache.places = same
            cache.found = [(k[:, :, :same], v[:, :, :same]) for k, v in last.get("pairs", ())]
            return cache

        model.new_cache = new_cache
        try:
            state = usual(inputs, features, all_logits=all_logits)
        finally:
            model.new_cache = usual_cache
        layers = range(state.cache.layers)
        last["ids"] = ids
        last["pairs"] = [(state.cache.keys(layer).clone(), state.cache.values(layer).clone()) for layer in layers]
        return state

    pipeline.prefill_with = prefill_with
    return subject


class Padded(KVCache):
    """Gives every row of a batch the position of its longest row."""

    def positions(self, new, device):
        if self.is_ragged:
            return torch.full((len(self.seen), new), max(self.seen), device=device)
        return super().positions(new, device)

    def append(self, layer, keys, values, positions):
        if self.is_ragged:
            positions = torch.tensor(self.slots, device=keys.device)[:, None]
        return super().append(layer, keys, values, positions)


def z40(setup):
    """Batches: one position for all rows, counted from the longest prompt (padding), so shorter rows' new tokens are
    rotated too far."""
    return with_cache(subject_of(setup), Padded)


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
NAMES = ("control", *(f"z{n:02}" for n in range(1, 41)))


def _limited(factory, kind):
    def made(setup):
        return kind(factory(setup))

    made.__annotations__ = {"return": kind}
    made.__doc__ = factory.__doc__
    return made


for _name in NAMES:
    for _level, _kind in LIMITED.items():
        globals()[f"{_name}_{_level}"] = _limited(globals()[_name], _kind)
