"""Import the vendor's files, and build their model of a checkpoint; for an environment that has transformers 4.46."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.checkpoint import Checkpoint, device_named, dtype_named
from pytest_dsocr.engine.weights import OnBytes
from pytest_dsocr.families import family_of
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.environment import FILES, PINS, check_vendor_folder

IMPORTED_AS = "dsocr_vendor_code"


@dataclass(frozen=True)
class VendorCode:
    """The vendor's imported modules, the hashes of their files, and what was overridden to import them."""

    modeling: Any
    encoder: Any
    sha256: dict[str, str]
    overrides: tuple[str, ...]


def load_vendor_code(folder: Path) -> VendorCode:
    """Import the vendor's files from ``folder`` as one package.

    Raises:
        DsocrError: where a file is missing, or the environment cannot import it.
    """
    check_vendor_folder(folder)
    overrides = stand_in_for_torchvision()
    for name in [name for name in sys.modules if name.split(".")[0] == IMPORTED_AS]:
        del sys.modules[name]  # of a folder loaded before
    package = ModuleType(IMPORTED_AS)
    package.__path__ = [str(folder)]
    sys.modules[IMPORTED_AS] = package
    try:
        with tempfile.TemporaryDirectory() as nowhere, mock.patch.object(sys, "pycache_prefix", nowhere):
            # Compiled again: a stale __pycache__ would run older code than the hashes below are of.
            modeling = importlib.import_module(f"{IMPORTED_AS}.{Path(FILES[0]).stem}")
    except ImportError as error:
        raise DsocrError(
            f"the vendor's code cannot be imported here ({error}); run in an environment with {', '.join(PINS)}"
        ) from error
    imported = {name: sys.modules[f"{IMPORTED_AS}.{Path(name).stem}"].__file__ for name in FILES}
    sha256 = {name: hashlib.sha256(Path(str(path)).read_bytes()).hexdigest() for name, path in imported.items()}
    encoder = sys.modules[modeling.MlpProjector.__module__]
    return VendorCode(modeling, encoder, sha256, tuple(overrides))


@contextmanager
def vendor_on_cpu(model: Any) -> Iterator[None]:
    """Let the vendor's hard-coded ``.cuda()`` and bf16 pixels work on a CPU model of any dtype."""

    def to_weights(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        dtype = next(module.parameters()).dtype
        return tuple(arg.to(dtype) for arg in args)

    first, *_ = family_of([type(model).__name__]).of_views
    hook = model.get_submodule(first.module).register_forward_pre_hook(to_weights)
    try:
        with cuda_stays():
            yield
    finally:
        hook.remove()


def cuda_stays() -> AbstractContextManager[Any]:
    """Make ``Tensor.cuda`` leave a tensor where it is, while the context is open."""
    return mock.patch.object(Tensor, "cuda", lambda tensor, *_, **__: tensor)


def stand_in_for_torchvision() -> list[str]:
    """Let ``import torchvision`` work; give what was overridden for it: nothing where the real one is installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is not None and spec.loader is not None:
        return []
    if spec is None:
        _make_stand_in()
    return ["torchvision: a stand-in for ToTensor, Normalize and Compose"]


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


def _make_stand_in() -> None:
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
    package, transforms, functional = (ModuleType(name) for name in names)
    package.__dict__.update(transforms=transforms)
    transforms.__dict__.update(ToTensor=_ToTensor, Normalize=_Normalize, Compose=_Compose, functional=functional)
    functional.__dict__.update(InterpolationMode=type("InterpolationMode", (), {}))
    for name, module in zip(names, (package, transforms, functional), strict=True):
        module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
        sys.modules[name] = module


def load_vendor_model(
    code: VendorCode,
    checkpoint: Checkpoint,
    *,
    device: str,
    dtype: str,
    attention: str,
    on_progress: OnBytes | None = None,
) -> Any:
    """Build the vendor's model and load ``checkpoint`` into it.

    It is built in float32 and cast, as the model card's ``model.to(torch.bfloat16)`` does, so that the rotary
    frequencies are rounded with the rest.
    """
    place = device_named(device)
    with place:
        model = build_vendor_model(code, checkpoint.architecture, attention)
    model = model.to(dtype_named(dtype))
    checkpoint.load_into(model, on_progress=on_progress)
    return model


def build_vendor_model(code: VendorCode, arch: Architecture, attention: str = "eager") -> Any:
    """Build the vendor's model with ``arch``'s dimensions in place of those its builders hard-code."""
    modeling = code.modeling
    config = modeling.DeepseekOCRConfig(**arch.to_config(), attn_implementation=attention)
    if _is_the_vendors(arch):
        return modeling.DeepseekOCRForCausalLM(config).eval()
    with mock.patch.dict(vars(modeling), _builders(code, arch)):
        model = modeling.DeepseekOCRForCausalLM(config)
    for name in ("image_newline", "view_seperator"):
        setattr(model.model, name, nn.Parameter(torch.zeros(arch.decoder.hidden_size)))
    return model.eval()


def build_overrides(arch: Architecture) -> list[str]:
    """Say what :func:`build_vendor_model` puts in the place of the vendor's own for ``arch``."""
    if _is_the_vendors(arch):
        return []
    return ["builders of SAM, CLIP, projector, newline and separator: other dimensions"]


def _is_the_vendors(arch: Architecture) -> bool:
    hidden_size = Architecture().decoder.hidden_size
    return arch == replace(Architecture(), decoder=arch.decoder) and arch.decoder.hidden_size == hidden_size


def _builders(code: VendorCode, arch: Architecture) -> dict[str, Callable[..., Any]]:
    projector = code.modeling.MlpProjector

    def sized_projector(cfg: Any) -> Any:
        cfg.input_dim, cfg.n_embed = arch.projector_input, arch.decoder.hidden_size
        return projector(cfg)

    return {
        "build_sam_vit_b": lambda: _build_sam(code.encoder, arch),
        "build_clip_l": lambda: _build_clip(code.encoder, arch),
        "MlpProjector": sized_projector,
    }


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
