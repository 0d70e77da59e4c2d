"""Many pages in one process: a page takes the row of one that has ended, while the others go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_dsocr.contract.image import ImageSource
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.fast.calls import Repeated
from pytest_dsocr.engine.fast.model import FastDeepseekOCR
from pytest_dsocr.engine.fast.slots import Slot, StaticCache
from pytest_dsocr.engine.fast.step import Rows
from pytest_dsocr.engine.pipeline import DecodeState, Vision
from pytest_dsocr.engine.result import Result
from pytest_dsocr.foundation.errors import DsocrError


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


STEPS_AT_ONCE = 16
"""Decode steps between two looks at which pages have ended; a page that has waits for the next look."""
PREPARED_AHEAD = 4
"""Pages whose inputs are made while others are decoded, each in a thread."""


@dataclass(frozen=True)
class Seated:
    """A page that has a row."""

    index: int
    """Its place among the pages asked for."""
    inputs: Inputs
    visions: list[Vision]


class PageBatch:
    """Rows for pages, whose memory and captured step are kept from one call to the next.

    Args:
        session: a fast one, which may be used otherwise between two calls.
        rows: pages that are decoded at once.

    Raises:
        DsocrError: where the session is not a fast one, or its weights are not in the dtype that it computes in.
    """

    def __init__(self, session: Engine[KVCache], rows: int = 8) -> None:
        model = session.model
        if not isinstance(model, FastDeepseekOCR):
            raise DsocrError('only the fast session batches pages; make it by from_checkpoint(..., engine="fast")')
        if session.pipeline.autocast and model.dtype != torch.bfloat16:
            raise DsocrError(f"weights in {model.dtype} are not batched under autocast; load them in bfloat16")
        if rows < 1:
            raise DsocrError(f"{rows} rows hold no page; give at least 1")
        self.session, self.rows = session, rows
        self._board = Board(model, rows)

    def read_many(
        self,
        images: Sequence[ImageSource],
        *,
        prompt: str = "markdown",
        preset: str | Preset = "gundam",
        max_new_tokens: int | None = None,
    ) -> list[Result]:
        """Read pages, each as if it were alone; results in the order asked. Stage times are those of all together."""
        session, policy = self.session, self.session.policy
        if max_new_tokens is not None:
            policy = replace(policy, max_new_tokens=max_new_tokens)
        session.stages.clear()
        read = dict(self._read(_prepared(session, images, prompt, preset), policy))
        times = session.stages.times()
        session.stages.clear()
        return [replace(read[index], stage_times=times) for index in range(len(images))]

    def _read(self, pages: Iterable[Inputs], policy: DecodePolicy) -> Iterator[tuple[int, Result]]:
        """Give each page's place and result, as it ends."""
        waiting, seated = enumerate(pages), dict[int, Seated]()
        self._board.clear()
        while True:
            for row in sorted({*range(self.rows)} - {*seated}):
                if (asked := next(waiting, None)) is not None:
                    seated[row] = self._seat(row, *asked, policy)
            if not seated:
                return
            with self.session.pipeline.running("decode"):
                ended = self._board.advance(STEPS_AT_ONCE, policy)
            for row in ended & seated.keys():
                page = seated.pop(row)
                tokens = self._board.tokens(row)[page.inputs.prompt_tokens :]
                yield page.index, self.session.result_of(tokens, page.inputs, page.visions, len(tokens) - 1, policy)

    def _seat(self, row: int, index: int, inputs: Inputs, policy: DecodePolicy) -> Seated:
        inputs = inputs.to(self.session.model.device)
        state = self.session.prefill(inputs)
        with torch.no_grad():
            self._board.seat(row, inputs.input_ids[0], state, policy)
        return Seated(index, inputs, state.visions)


def _prepared(
    session: Engine[KVCache], images: Sequence[ImageSource], prompt: str, preset: str | Preset
) -> Iterator[Inputs]:
    """Make inputs in order, a few of them ahead, on the CPU."""

    def prepare(image: ImageSource) -> Inputs:
        with session.stages("tokenizer"):
            return session.family.prepare(image, prompt, preset, session.tokenizer)

    ahead = deque[Future[Inputs]]()
    with ThreadPoolExecutor(PREPARED_AHEAD) as pool:
        for image in images:
            ahead.append(pool.submit(prepare, image))
            if len(ahead) > PREPARED_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
