"""Prefill and decode steps of one page, made by the subject (L2) as often as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.case import make_case

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.subjects.checked import CheckedSubject
    from pytest_dsocr.subjects.protocol import DecodeView

QUICK = "tiny"
STEPS = 8


class Walk:
    """One page, from the prompt on.

    Args:
        subject: the implementation under test.
        page: an image.
        preset: its sizes; the quickest where they do not matter.
    """

    def __init__(self, subject: Any, page: Path, preset: str = QUICK) -> None:
        self._subject = subject
        self.page, self.preset = page, preset

    @cached_property
    def subject(self) -> CheckedSubject:
        """The subject, whose every answer is checked to be one."""
        from pytest_dsocr.subjects.checked import CheckedSubject

        return CheckedSubject(self._subject)

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The subject's inputs of the page; never handed out but as copies."""
        return self.subject.inputs(make_case(self.page, "markdown", self.preset))

    @cached_property
    def features(self) -> Tensor:
        """The page's features, ``vision_fusion``."""
        return self.subject.vision(self.copies())["vision_fusion"]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.inputs["input_ids"].shape[1]

    @cached_property
    def tokens(self) -> list[int]:
        """The subject's own :data:`STEPS` first choices, without any rule of repetition."""
        state, logits = self.start()
        chosen = [int(logits.argmax())]
        while len(chosen) < STEPS:
            chosen.append(int(self.subject.step(state, chosen[-1]).argmax()))
        return chosen

    def copies(self, more: Sequence[int] = ()) -> dict[str, Tensor]:
        """Give the inputs anew, with ``more`` tokens of text behind the prompt."""
        import torch

        given = {name: tensor.clone() for name, tensor in self.inputs.items()}
        if more:
            ids, mask = given["input_ids"], given["images_seq_mask"]
            given["input_ids"] = torch.cat([ids, ids.new_tensor([list(more)])], dim=1)
            given["images_seq_mask"] = torch.cat([mask, mask.new_zeros(1, len(more))], dim=1)
        return given

    def text_only(self, more: Sequence[int] = ()) -> dict[str, Tensor]:
        """Give the inputs anew, with a prompt of BOS and ``more`` tokens, and none of the image's."""
        given = self.copies()
        given["input_ids"] = given["input_ids"].new_tensor([[int(given["input_ids"][0, 0]), *more]])
        given["images_seq_mask"] = given["images_seq_mask"].new_zeros(1, 1 + len(more))
        return given

    def start(self, more: Sequence[int] = ()) -> tuple[DecodeView, Tensor]:
        """Prefill the prompt and ``more`` tokens in one call; give the state and its logits ``[V]``."""
        return self.subject.prefill(self.copies(more), self.features.clone())

    def steps(self, state: DecodeView, tokens: Sequence[int]) -> list[Tensor]:
        """Feed tokens one by one; give the logits after each."""
        return [self.subject.step(state, token) for token in tokens]
