"""Subjects of other people's code: processors without their servers, and wrappers of the vendor's model.

A processor of a server that needs a GPU is loaded from its unpacked wheel. Small stand-ins replace its other imports.
A wrapper receives the vendor's model, from files in the folder ``DSOCR_VENDOR``. It handles page, prompt and text
itself.
"""

import importlib
import os
import sys
from functools import partialmethod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from pytest_dsocr.adapters.processor import ProcessorInputs, subject
from pytest_dsocr.adapters.wrapped import Wrapped
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.reference.vendor_code.code import stand_in_for_torchvision
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.loading import named_factory
from pytest_dsocr.subjects.parts import Completed, completed
from pytest_dsocr.subjects.protocol import Setup


def vllm(setup: Setup) -> Completed:
    """Return vLLM's processor; raise ``DsocrError`` where its wheel is not unpacked on the path."""
    _stand_in()
    return subject("processor:vllm.transformers_utils.processors.deepseek_ocr:DeepseekOCRProcessor", setup)


def sglang(setup: Setup) -> Completed:
    """Return SGLang's processor; raise ``DsocrError`` where its wheel is not unpacked on the path."""
    _stand_in()
    rule = SimpleNamespace(to_str=lambda: "its rule against repetition, which the processor only names")
    _module("sglang.srt.sampling.custom_logit_processor", DeepseekOCRNoRepeatNGramLogitProcessor=rule)
    return subject("processor:sglang.srt.configs.deepseek_ocr:DeepseekOCRProcessor", setup)


def vllm_unlimited(setup: Setup) -> Completed:
    """Return vLLM's processor of Unlimited-OCR, with the crops that its model names; raises as :func:`vllm`."""
    _stand_in()
    _module("vllm.logger", init_logger=lambda name: SimpleNamespace(warning_once=str))
    return _given("vllm.transformers_utils.processors.unlimited_ocr:UnlimitedOCRProcessor", setup, max_crops=32)


def sglang_unlimited(setup: Setup) -> Completed:
    """Return SGLang's processor of Unlimited-OCR; raises as :func:`sglang`."""
    sglang(setup)
    return subject("processor:sglang.srt.configs.unlimited_ocr:UnlimitedOCRHFProcessor", setup)


def vllm_deepseek2(setup: Setup) -> Completed:
    """Return vLLM's processor as its model of DeepSeek-OCR-2 makes it; raises as :func:`vllm`."""
    _stand_in()
    return _given("vllm.transformers_utils.processors.deepseek_ocr:DeepseekOCRProcessor", setup, strategy="v2")


def sglang_deepseek2(setup: Setup) -> Completed:
    """Return SGLang's processor in its mode for DeepSeek-OCR-2; raises as :func:`sglang`."""
    sglang(setup)
    return _given("sglang.srt.configs.deepseek_ocr:DeepseekOCRProcessor", setup, ocr2_mode=True)


def _given(name: str, setup: Setup, **values: object) -> Completed:
    """Return a processor that is made with ``values``."""
    kind: Any = named_factory(name)
    kind = type("Given", (kind,), {"__init__": partialmethod(kind.__init__, **values)})
    return completed(ProcessorInputs(kind, setup), setup)


def _stand_in() -> None:
    from transformers.utils.import_utils import is_torchvision_available

    is_torchvision_available()  # asked first, as transformers would take a stand-in for the real one
    stand_in_for_torchvision()


class XinferenceOcr:
    """L1: Xinference's ``DeepSeekOCRModel``, as its server calls it for a page."""

    def __init__(self, setup: Setup) -> None:
        for name in ("xinference", "xinference.model", "xinference.model.image", "xinference.model.image.ocr"):
            _package(name)
        _module("xinference.model.utils", allow_trust_remote_code=bool)  # loading is ours
        module = importlib.import_module("xinference.model.image.ocr.deepseek_ocr")
        self._wrapped = Wrapped(vendor_files(), setup)
        self._ocr = module.DeepSeekOCRModel("mini", model_spec=SimpleNamespace(model_ability=["ocr"]))
        self._ocr._model, self._ocr._tokenizer = self._wrapped.model, self._wrapped.tokenizer

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read a page; ``eval_mode`` lets ``infer`` give its text."""
        with self._wrapped.watched("generate", max_new_tokens):
            return str(self._answered(page, prompt, preset)["text"])

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return what reaches ``generate``."""
        return self._wrapped.handed_to("generate", lambda: self._answered(page, prompt, preset))

    def _answered(self, page: Path, prompt: str, preset: Preset) -> dict[str, Any]:
        with Image.open(page) as image:
            found: dict[str, Any] = self._ocr.ocr(image, prompt=prompt, model_size=preset.name, eval_mode=True)
        if not found.get("success"):
            raise DsocrError(f"Xinference answered with an error: {found.get('error')}")
        return found


class LlmPerfOpt:
    """L1: the session of llm-perf-opt, the project that this one grew out of."""

    def __init__(self, setup: Setup) -> None:
        self._wrapped = Wrapped(vendor_files(), setup)
        made = importlib.import_module("llm_perf_opt.runners.dsocr_session").DeepSeekOCRSession()
        made.m_model, made.m_tokenizer = self._wrapped.model, self._wrapped.tokenizer
        made.m_device, made.m_dtype = torch.device(setup.device), torch.bfloat16
        made.m_conv_module_path = str(vendor_files() / "conversation.py")
        self._session = made

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read a page, as its runner does."""
        with self._wrapped.watched("forward", max_new_tokens):
            found = self._asked(page, prompt, preset, max_new_tokens)
        return str(found["text"]).removesuffix(self._wrapped.tokenizer.eos_token)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return what reaches the model's ``forward``."""
        return self._wrapped.handed_to("forward", lambda: self._asked(page, prompt, preset, max_new_tokens=1))

    def _asked(self, page: Path, prompt: str, preset: Preset, max_new_tokens: int) -> dict[str, Any]:
        sizes = {"base_size": preset.base_size, "image_size": preset.image_size, "crop_mode": preset.crop}
        found: dict[str, Any] = self._session.run_inference(
            str(page), prompt, max_new_tokens=max_new_tokens, return_text=True, preprocess={"enable": True, **sizes}
        )
        return found


class Encoder(EngineSubject):
    """L3: deepseek-ocr-encoder's CLIP within the engine, and its one way to open a page, in the preset base."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(engine_subject(setup).engine)
        model: Any = self.engine.model
        package = importlib.import_module("deepseek_ocr_encoder")
        made = package.DeepSeekOCREncoder(
            model.model, device=setup.device, dtype=model.dtype, precompute_pos_for_1024=False
        )
        made.embed_dim, made.sam = model.model.vision_model.embeddings.class_embedding.numel(), nn.Identity()
        self._encoder, model.clip = made, self._clip

    def _clip(self, sam: Tensor) -> Tensor:
        """Return ``[N, 1 + h * w, C]``; it has no class token, and adds SAM's features, which are taken off again."""
        tokens = sam.flatten(2).transpose(1, 2)
        found = self._encoder._forward_core(sam) - tokens
        return torch.cat([torch.zeros_like(found[:, :1]), found], 1)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return the engine's, of the preset base with its own pixels."""
        inputs = super().inputs(page, prompt=prompt, preset=preset)
        if preset.name == "base":
            with Image.open(page) as image:  # as its encode does, which pins memory and so needs a GPU
                inputs["images_ori"] = self._encoder._preproc_1024(image.convert("RGB"))[None].bfloat16()
        return inputs


def vendor_files() -> Path:
    """Return the folder of the vendor's files; raise ``DsocrError`` where none is named."""
    if "DSOCR_VENDOR" not in os.environ:
        raise DsocrError("this wraps the vendor's model; name the folder of its Python files in DSOCR_VENDOR")
    return Path(os.environ["DSOCR_VENDOR"])


def _package(name: str) -> None:
    """Let what lies in a package's folder be imported without its ``__init__``, which imports all of the server."""
    _module(name).__path__ = [str(Path(folder, *name.split("."))) for folder in sys.path]


def _module(name: str, **values: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(values)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made
