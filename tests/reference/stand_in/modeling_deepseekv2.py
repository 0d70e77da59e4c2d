"""The stand-in's decoding: see ``modeling_deepseekocr.py``."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline, pick
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR


class Decoding(DeepseekOCR):
    """The engine's model, whose ``forward`` is a prefill where it is given images, and else a decode step."""

    def forward(self, input_ids: Tensor, images: Any = None, past: Any = None, **rows: Tensor) -> Any:
        pipeline: Pipeline[Any] = Pipeline(self, Stages(self.device), autocast=False)
        state: DecodeState[Any] = past
        if images is None:
            pipeline.decode_step(state, input_ids[0].tolist())
        else:
            [(crops, page)] = images
            state = pipeline.prefill(Inputs(input_ids, images_crop=crops, images_ori=page, **rows))
        return SimpleNamespace(logits=state.logits[:, None], past_key_values=state)

    def generate(
        self, input_ids: Tensor, *, max_new_tokens: int, no_repeat_ngram_size: int, eos_token_id: int, **images: Any
    ) -> Tensor:
        ids: list[int] = input_ids[0].tolist()
        ban = NgramBan(no_repeat_ngram_size, ids)
        out = self(input_ids, **images)
        for left in reversed(range(max_new_tokens)):
            ids += pick(out.logits[:, -1], [ban.banned()])
            ban.push(ids[-1])
            if ids[-1] == eos_token_id or not left:
                break
            out = self(torch.tensor([ids[-1:]]), past=out.past_key_values)
        return torch.tensor([ids])
