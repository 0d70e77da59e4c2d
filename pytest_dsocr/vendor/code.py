"""Import the vendor's files from a folder that the user named, and build its model at any dimensions.

For an environment that has transformers 4.46. Whatever is put in the place of something the vendor's code has
hard-coded is listed in :attr:`VendorCode.overrides`; nothing else of its behaviour is touched.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.errors import DsocrError

PACKAGE = "dsocr_vendor_code"
FILES = (
    "modeling_deepseekocr.py",
    "modeling_deepseekv2.py",
    "deepencoder.py",
    "conversation.py",
    "configuration_deepseek_v2.py",
)


@dataclass
class VendorCode:
    """The vendor's imported modules, the hashes of their files, and what was overridden in them."""

    modeling: Any
    encoder: Any
    sha256: dict[str, str]
    overrides: list[str] = field(default_factory=list)


def load_vendor_code(folder: Path) -> VendorCode:
    """Import the vendor's files from ``folder`` as one package.

    Raises:
        DsocrError: where a file is missing, or the environment cannot import it.
    """
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DsocrError(f"{folder} lacks {', '.join(missing)}; give a folder with the vendor's Python files")
    overrides = _stand_in_for_torchvision()
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]  # of a folder loaded before
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[PACKAGE] = package
    try:
        modeling = importlib.import_module(f"{PACKAGE}.modeling_deepseekocr")
    except ImportError as error:
        raise DsocrError(
            f"the vendor's code cannot be imported here ({error}); run in an environment with "
            "transformers==4.46.3, tokenizers==0.20.3, addict, easydict, einops, matplotlib and requests"
        ) from error
    imported = {name: sys.modules[f"{PACKAGE}.{Path(name).stem}"].__file__ for name in FILES}
    sha256 = {name: hashlib.sha256(Path(str(path)).read_bytes()).hexdigest() for name, path in imported.items()}
    return VendorCode(modeling, sys.modules[f"{PACKAGE}.deepencoder"], sha256, overrides)


def build_vendor_model(code: VendorCode, arch: Architecture, attn: str = "eager") -> Any:
    """Build the vendor's model with ``arch``'s dimensions in place of those its builders hard-code."""
    modeling, encoder = code.modeling, code.encoder
    config = modeling.DeepseekOCRConfig(**arch.to_config(), attn_implementation=attn)
    projector = modeling.MlpProjector

    def sized_projector(cfg: Any) -> Any:
        cfg.input_dim, cfg.n_embed = arch.projector_input, arch.decoder.hidden_size
        return projector(cfg)

    builders: dict[str, Callable[..., Any]] = {
        "build_sam_vit_b": lambda: _build_sam(encoder, arch),
        "build_clip_l": lambda: _build_clip(encoder, arch),
        "MlpProjector": sized_projector,
    }
    if arch == replace(Architecture(), decoder=arch.decoder) and arch.decoder.hidden_size == 1280:
        builders = {}
    with _replaced(modeling, builders):
        model = modeling.DeepseekOCRForCausalLM(config)
    if builders:
        for name in ("image_newline", "view_seperator"):
            setattr(model.model, name, nn.Parameter(torch.zeros(arch.decoder.hidden_size)))
        code.overrides.append("builders of SAM, CLIP, projector, newline and separator: other dimensions")
    return model.eval()


@contextmanager
def vendor_on_cpu(model: Any) -> Iterator[None]:
    """Let the vendor's hard-coded ``.cuda()`` and bf16 pixels work on a CPU model of any dtype."""

    def to_weights(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        dtype = next(module.parameters()).dtype
        return tuple(arg.to(dtype) for arg in args)

    hook = model.model.sam_model.register_forward_pre_hook(to_weights)
    try:
        with cuda_stays():
            yield
    finally:
        hook.remove()


@contextmanager
def cuda_stays() -> Iterator[None]:
    """Make ``Tensor.cuda`` leave a tensor where it is."""
    with _replaced(Tensor, {"cuda": lambda tensor, *_, **__: tensor}):
        yield


@contextmanager
def _replaced(module: object, values: dict[str, Any]) -> Iterator[None]:
    saved = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(module, name, value)


def _build_sam(encoder: Any, arch: Architecture) -> nn.Module:
    sam = arch.sam

    def norm(width: int) -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=sam.layer_norm_eps)

    model: nn.Module = encoder.ImageEncoderViT(
        depth=sam.layers,
        embed_dim=sam.width,
        img_size=sam.image_size,
        mlp_ratio=sam.mlp_ratio,
        norm_layer=norm,
        num_heads=sam.heads,
        patch_size=sam.patch_size,
        use_rel_pos=True,
        global_attn_indexes=sam.global_attn_indexes,
        window_size=sam.window_size,
        out_chans=sam.neck_channels,
    )
    middle, last = sam.downsample_channels
    model.net_2 = nn.Conv2d(sam.neck_channels, middle, kernel_size=3, stride=2, padding=1, bias=False)
    model.net_3 = nn.Conv2d(middle, last, kernel_size=3, stride=2, padding=1, bias=False)
    return model.eval()


def _build_clip(encoder: Any, arch: Architecture) -> nn.Module:
    clip = arch.clip
    config = type(encoder.vit_model_cfg)(encoder.vit_model_cfg)
    config.update(
        num_layers=clip.layers,
        hidden_size=clip.width,
        num_heads=clip.heads,
        num_attention_heads=clip.heads,
        ffn_hidden_size=clip.width * clip.mlp_ratio,
        layernorm_epsilon=clip.layer_norm_eps,
        pre_layernorm_epsilon=clip.layer_norm_eps,
        image_size=clip.image_size,
        patch_size=clip.patch_size,
    )
    model: nn.Module = encoder.VitModel(cfg=config)
    return model


class _ToTensor:
    """torchvision's transform of an RGB image: float32 in [0, 1], channels first."""

    def __call__(self, image: Any) -> Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


class _Normalize:
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.mean, self.std = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]

    def __call__(self, image: Tensor) -> Tensor:
        return image.sub(self.mean).div(self.std)


class _Compose:
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


def _stand_in_for_torchvision() -> list[str]:
    spec = importlib.util.find_spec("torchvision")
    if spec is not None and spec.loader is not None:
        return []
    if spec is None:
        _make_stand_in()
    return ["torchvision: a stand-in for ToTensor, Normalize and Compose"]


def _make_stand_in() -> None:
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
    package, transforms, functional = (ModuleType(name) for name in names)
    package.__dict__.update(transforms=transforms)
    transforms.__dict__.update(ToTensor=_ToTensor, Normalize=_Normalize, Compose=_Compose, functional=functional)
    functional.__dict__.update(InterpolationMode=type("InterpolationMode", (), {}))
    for name, module in zip(names, (package, transforms, functional), strict=True):
        module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
        sys.modules[name] = module
