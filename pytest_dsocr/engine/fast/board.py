"""The memory of a batch: each row's keys, values and tokens, and the step that all rows take together."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.fast.cache import StaticCache
from pytest_dsocr.engine.fast.calls import Repeated
from pytest_dsocr.engine.fast.model import FastDeepseekOCR
from pytest_dsocr.engine.fast.rows import Rows
from pytest_dsocr.engine.fast.slots import Slot
from pytest_dsocr.engine.pipeline import DecodeState


class Board:
    """A slot of several rows, of twice the room whenever a page needs more.

    Args:
        model: whose steps are taken.
        rows: pages side by side.
    """

    def __init__(self, model: FastDeepseekOCR, rows: int) -> None:
        self._model, self._count = model, rows
        self._slot: Slot | None = None
        self._rows: Rows | None = None
        self._positions = [0] * rows
        """As they were when the host looked last."""
        self._step: tuple[object, Repeated] | None = None

    def clear(self) -> None:
        """Let no row run: a call before may have been interrupted."""
        self._positions = [0] * self._count
        if self._rows is not None:
            self._rows.running.fill_(False)
            self._rows.positions.zero_()

    def seat(self, row: int, prompt: Tensor, state: DecodeState[KVCache], policy: DecodePolicy) -> None:
        """Give a row that does not run a page that is prefilled, with its prompt's ids ``[T]``."""
        assert isinstance(state.cache, StaticCache)
        length = state.cache.length
        slot, rows = self._with_room(length + 1, state.cache.keys(0))
        page = state.cache.ready()
        slot.values[:, row].zero_()  # a weight of 0 does not hide a NaN that the page before left
        slot.keys[:, row, :, :length] = page.keys[:, 0, :, :length]
        slot.values[:, row, :, :length] = page.values[:, 0, :, :length]
        rows.start(row, prompt, state.logits, policy)
        self._positions[row] = length

    def advance(self, steps: int, policy: DecodePolicy) -> set[int]:
        """Take some steps, then look which rows do not run."""
        assert self._slot is not None
        slot, rows = self._with_room(max(self._positions) + steps, self._slot.keys[0])
        step = self._repeated(slot, rows, policy)
        for _ in range(steps):
            step()
        self._positions, running = torch.stack([rows.positions, rows.running.long()]).tolist()
        return {row for row in range(self._count) if not running[row]}

    def tokens(self, row: int) -> list[int]:
        """Give the prompt and the output of a row, up to where the host looked last."""
        assert self._rows is not None
        found: list[int] = self._rows.tokens[row, : self._positions[row] + 1].tolist()
        return found

    def _repeated(self, slot: Slot, rows: Rows, policy: DecodePolicy) -> Repeated:
        model = self._model
        key = (slot, model.weights, model.operations, policy.eos_id, policy.no_repeat_ngram_size)
        if self._step is None or self._step[0] != key:

            def body() -> None:
                embeds = model.embed(rows.fed()[:, None])[:, 0]
                rows.push(model.compute_step(embeds, slot), policy)

            self._step = key, Repeated(body, model.device)
        return self._step[1]

    def _with_room(self, positions: int, like: Tensor) -> tuple[Slot, Rows]:
        """Give room for ``positions`` of each row, the greatest of which is that of a token that is fed."""
        old, rows = self._slot, self._rows
        if old is not None and rows is not None and old.room >= positions:
            return old, rows
        slot = self._model.slots_like(like).take(self._count, positions)
        new = Rows.over(slot.positions, slot.room)
        if old is not None and rows is not None:
            slot.keys[:, :, :, : old.room] = old.keys
            slot.values[:, :, :, : old.room] = old.values
            new.copy_(rows)
        self._slot, self._rows = slot, new
        return slot, new
