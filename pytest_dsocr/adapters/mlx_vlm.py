"""mlx-vlm in this process, stage by stage: ``--dsocr-subject=pytest_dsocr.adapters.mlx_vlm:MlxVlm``.

Needs ``mlx`` and ``mlx-vlm`` besides this package, on a Mac or, with ``mlx[cpu]``, on Linux. Level 2: mlx has no torch
modules to hook. A checkpoint is written for mlx-vlm: with its own names in ``config.json``, and with the sizes of the
encoder if they are not its built-in ones.
"""

import importlib
import json
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import astuple, replace
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.adapters.mlx import MlxCache, MlxState, embedded, inputs_of, to_mlx, to_torch, vision_of, watched
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract import GRID, PIXELS
from pytest_dsocr.contract.image import images_in
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.engine.portable import write_portable
from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.sizes import DeepEncoder
from pytest_dsocr.models.deepseek_ocr2.sizes import DeepEncoder2
from pytest_dsocr.models.spec import EncoderSizes, ModelSpec
from pytest_dsocr.subjects.protocol import Setup

OWN_NAMES = {
    "deepseek_ocr": ("deepseekocr", "DeepseekOCRProcessor"),
    "deepseek_ocr2": ("deepseekocr_2", "DeepseekOCR2Processor"),
}
"""Model type and processor of mlx-vlm by family, if they are not those of the published files."""
OWN_MODULES = {"qwen2_model": "vision_model"}
"""Encoders of mlx-vlm that do not have the vendor's names."""
PREFILL_STEP = 2048
"""Most tokens of a prompt at once, in releases before 0.4.0, which do not name it."""
SAM_DIMENSIONS = 4
"""Number of dimensions of SAM's features, whose channels are last in mlx."""


def write_mlx(checkpoint: str | Path, folder: Path) -> None:
    """Write ``checkpoint`` to a new ``folder``, in mlx-vlm's names; raises as :func:`write_portable`.

    Fields that the vendor's config leaves out stay left out, so mlx-vlm's own defaults count.
    """
    write_portable(checkpoint, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    architecture = Architecture.from_folder(folder)
    processor = folder / "processor_config.json"
    named = json.loads(processor.read_text(encoding="utf-8"))
    published = config["model_type"], named["processor_class"]
    model_type, named["processor_class"] = OWN_NAMES.get(architecture.family.name, published)
    config |= {"model_type": model_type, "vision_config": config["vision_config"] | _vision(architecture.encoder)}
    path.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    processor.write_text(json.dumps(named, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _vision(encoder: EncoderSizes) -> dict[str, int]:
    """Return the fields of ``vision_config`` that mlx-vlm reads; it reads no size of a Qwen2 tower but its width."""
    if not isinstance(encoder, DeepEncoder):
        return {}
    clip = encoder.clip
    return {
        "layers": clip.layers,
        "width": clip.width,
        "hidden_size": clip.width,
        "intermediate_size": clip.width * clip.mlp_ratio,
        "num_attention_heads": clip.heads,
        "patch_size": clip.patch_size,
    }


def resize(architecture: Architecture) -> None:
    """Make mlx-vlm build SAM and the Qwen2 tower in these sizes; it knows those of the published models alone."""
    encoder = architecture.encoder
    assert isinstance(encoder, DeepEncoder | DeepEncoder2)
    name, _ = OWN_NAMES.get(architecture.family.name, OWN_NAMES["deepseek_ocr"])
    places = f"{name}.{name}", f"{name}.config", f"{name}.vision", "deepseekocr.sam"
    parts: list[Any] = [importlib.import_module(f"mlx_vlm.models.{place}") for place in places]
    module, configs, vision, sam = parts
    names = ("image_size", "width", "layers", "heads", "window_size", "global_attn_indexes")
    sizes = {name: getattr(encoder.sam, name) for name in names}
    module.SAMViTConfig = partial(configs.SAMViTConfig, **sizes)
    module.SAMEncoder = partial(sam_encoder, sam.SAMEncoder, encoder.sam)
    if isinstance(encoder, DeepEncoder2):
        own = configs.Qwen2EncoderConfig(*astuple(encoder.tower))  # the same fields in the same order
        vision.Qwen2EncoderConfig = lambda **_: own


def sam_encoder(kind: Any, sam: SamConfig, **sizes: Any) -> Any:
    """Build an encoder of mlx modules, whose neck and strided convolutions get SAM's channels."""
    nn = importlib.import_module("mlx.nn")
    made = kind(**sizes, out_chans=sam.neck_channels)
    channels = (sam.neck_channels, *sam.downsample_channels)
    strided = partial(nn.Conv2d, kernel_size=3, stride=2, padding=1, bias=False)
    made.net_2, made.net_3 = (strided(*pair) for pair in pairwise(channels))
    return made


def encoders(family: ModelSpec) -> dict[str, str]:
    """Return the encoders of mlx-vlm's model by the stages that they are."""
    modules = {stage.name: stage.module.rpartition(".")[2] for stage in family.of_views}
    return {stage: OWN_MODULES.get(module, module) for stage, module in modules.items()}


class MlxVlm:
    """mlx-vlm's DeepSeek-OCR; fulfils ``StagedSubject``.

    Raises:
        DsocrError: where mlx-vlm is not installed.
    """

    def __init__(self, setup: Setup) -> None:
        try:
            self._mx = importlib.import_module("mlx.core")
            utils = importlib.import_module("mlx_vlm.utils")
            self._generate = importlib.import_module("mlx_vlm.generate")
            self._prompts = importlib.import_module("mlx_vlm.prompt_utils")
        except ImportError as error:
            raise DsocrError(
                f"mlx-vlm cannot be imported here ({error}); run: pip install 'mlx[cpu]' mlx-vlm"
            ) from error
        self._prepare = utils.prepare_inputs
        architecture = architecture_of(setup.checkpoint)
        self._mark = f"{IMAGE}\n" if architecture.family.name in OWN_NAMES else IMAGE
        self.seams, self._encoders = architecture.family.vision_seams, encoders(architecture.family)
        resize(architecture)
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            write_mlx(setup.checkpoint, Path(folder))
            self._model, self._processor = utils.load(folder, trust_remote_code=False)
        self._model.set_dtype(getattr(self._mx, setup.dtype))
        self.dtype = setup.dtype
        self.policy = replace(
            architecture.family.decoding, eos_id=architecture.decoder.eos_token_id, no_repeat_ngram_size=0
        )

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end, by ``mlx_vlm.generate``."""
        files = _files(page)
        with redirect_stdout(StringIO()):
            result = self._generate.generate(
                self._model,
                self._processor,
                self._worded(prompt, len(files)),
                image=files,
                max_tokens=max_new_tokens,
                temperature=0.0,
                **_sizes(preset),
            )
        return str(result.text)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return the processor's inputs for a page."""
        files = _files(page)
        with redirect_stdout(StringIO()):
            text = self._worded(prompt, len(files))
            made = self._prepare(self._processor, images=files, prompts=text, **_sizes(preset))
        crops, pages = (to_torch(views).bfloat16() for views in made["pixel_values"])
        return inputs_of(made, (crops if crops.any() else crops.float(), pages))

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run vision, and watch its encoders."""
        with watched(self._model, self._encoders) as seen:
            embeds = self._model.get_input_embeddings(
                to_mlx(inputs["input_ids"]),
                [to_mlx(inputs[name]) for name in PIXELS],
                to_mlx(inputs[GRID]),
                to_mlx(inputs["images_seq_mask"]),
            ).inputs_embeds
        if not all(seen.values()):
            return {}
        seams = vision_of(embeds, seen, inputs)
        return {
            name: value.permute(0, 3, 1, 2) if value.ndim == SAM_DIMENSIONS else value for name, value in seams.items()
        }

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> MlxState:
        """Run the prompt with these features at its image tokens; its last token runs alone, as in ``generate``."""
        language = self._model.language_model
        embeds = embedded(language.model.embed_tokens, inputs, vision_fusion)
        cache = importlib.import_module("mlx_vlm.models.cache").make_prompt_cache(language)
        state = MlxState(MlxCache(cache), torch.empty(0))
        ids, given = to_mlx(inputs["input_ids"]), to_mlx(embeds, self.dtype)
        last = ids.shape[1] - 1
        most = getattr(self._generate, "DEFAULT_PREFILL_STEP_SIZE", PREFILL_STEP)
        for first, end in pairwise([*range(0, last, most), last, last + 1]):
            self._fed(state, ids[:, first:end], given[:, first:end])
        return state

    def step(self, state: MlxState, token: int) -> Tensor:
        """Feed one token."""
        return self._fed(state, self._mx.array([[token]]), None).logits

    def _fed(self, state: MlxState, ids: Any, embeds: Any) -> MlxState:
        output = self._model.language_model(ids, inputs_embeds=embeds, cache=state.cache.stored)
        state.logits = to_torch(output.logits)[0, -1]
        return state

    def _worded(self, prompt: str, pages: int) -> Any:
        """Return a prompt as mlx-vlm words it, with the image, or the image and a newline, before the text."""
        text = prompt.replace(self._mark, "", 1).replace(IMAGE, "", 1)
        return self._prompts.apply_chat_template(self._processor, self._model.config, text, num_images=pages)


def _files(page: Path) -> list[str]:
    """Return a page's file, or those of a folder."""
    return [*map(str, images_in(page) if page.is_dir() else [page])]


def _sizes(preset: Preset) -> dict[str, Any]:
    return {"base_size": preset.base_size, "image_size": preset.image_size, "cropping": preset.crop}
