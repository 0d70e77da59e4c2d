"""The engine with one needless cost each."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.protocol import Setup


class WaitsInRead(EngineSubject):
    """Reads by its own stages, and waits for the best logit as well as for its place."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        inputs = self.inputs(page, prompt=prompt, preset=preset)
        state = self.prefill(inputs, self.vision(inputs).get("vision_fusion"))
        tokens = [self.chosen(state.logits)]
        while len(tokens) < max_new_tokens and tokens[-1] != self.policy.eos_id:
            tokens.append(self.chosen(self.step(state, tokens[-1])))
        return self.text_of(tokens)

    def chosen(self, logits: Tensor) -> int:
        assert logits.max().item() < torch.inf
        return int(logits.argmax())


class VisionInDecode(EngineSubject):
    """Encodes the page again in each decode step."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.pixels = inputs["images_ori"]
        return super().vision(inputs)

    def step(self, state: Any, token: int) -> Tensor:
        self.engine.pipeline.view(self.pixels)
        return super().step(state, token)


class VisionTwice(EngineSubject):
    """Encodes the page a second time before it reads it."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        inputs = self.engine.prepare(page, prompt=prompt, preset=preset)
        self.engine.pipeline.vision(inputs)
        return self.engine.run_prepared(inputs, max_new_tokens=max_new_tokens).text


class VisionLeftOut(EngineSubject):
    """Reads the prompt, and no page: what is all zero is taken for none."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        inputs = self.engine.prepare(page, prompt=prompt, preset=preset)
        blank = replace(inputs, images_ori=torch.zeros_like(inputs.images_ori))
        return self.engine.run_prepared(blank, max_new_tokens=max_new_tokens).text


class PrefillKept(EngineSubject):
    """Goes on from what it kept of a prompt, where the same comes again."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine)
        self.kept: dict[tuple[int, ...], Any] = {}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        prompt = (*inputs["input_ids"][0].tolist(),)
        if prompt not in self.kept:
            self.kept[prompt] = super().prefill(inputs, vision_fusion)
        return deepcopy(self.kept[prompt])


class OtherTokens(EngineSubject):
    """Chooses the worst token, and so reads another text."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        state = super().prefill(inputs, vision_fusion)
        state.logits = -state.logits
        return state

    def step(self, state: Any, token: int) -> Tensor:
        return -super().step(state, token)


class WaitsInStep(EngineSubject):
    """Looks at a number of the device in each step."""

    def step(self, state: Any, token: int) -> Tensor:
        logits = super().step(state, token)
        assert logits.isfinite().all().item()
        return logits


class ConcatenatedCache(KVCache):
    """Has no room to spare: each step copies all positions into new tensors."""

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if (old_keys := self._keys[layer]) is not None and (old_values := self._values[layer]) is not None:
            keys, values = torch.cat([old_keys, keys], dim=2), torch.cat([old_values, values], dim=2)
        self._keys[layer], self._values[layer] = keys, values
        return keys, values


class CacheConcatenated(EngineSubject):
    """Keeps its keys and values in a :class:`ConcatenatedCache`."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine)
        self.layers = engine.model.new_cache().layers

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        state = super().prefill(inputs, vision_fusion)
        full, state.cache = state.cache, ConcatenatedCache(self.layers)
        for layer in range(self.layers):
            state.cache.append(layer, full.keys(layer).clone(), full.values(layer).clone(), torch.empty(0))
        state.cache.advance(full.length)
        return state


class QuadraticNgrams(EngineSubject):
    """Looks at each token for n-grams that occur twice anywhere in the prompt and the text."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        inputs = self.engine.prepare(page, prompt=prompt, preset=preset)
        tokens: list[int] = inputs.input_ids[0].tolist()

        def on_token(token: int) -> None:
            tokens.append(token)
            self.twice(tokens)

        return self.engine.run_prepared(inputs, max_new_tokens=max_new_tokens, on_token=on_token).text

    def twice(self, tokens: list[int], n: int = 3) -> set[int]:
        return {tokens[b] for a, b in combinations(range(n, len(tokens)), 2) if tokens[a - n : a] == tokens[b - n : b]}


class CastsWeights(EngineSubject):
    """Casts the output layer's weights in each step, as if they were kept in another dtype."""

    def step(self, state: Any, token: int) -> Tensor:
        self.engine.model.get_submodule("lm_head").weight.to(torch.float64)
        return super().step(state, token)


def loaded(kind: type[EngineSubject]) -> Callable[[Setup], EngineSubject]:
    """Load one as the suites and ``dsocr bench`` do."""
    return lambda setup: kind(engine_subject(setup).engine)


vision_in_decode, vision_twice = loaded(VisionInDecode), loaded(VisionTwice)
cache_concatenated, casts_weights = loaded(CacheConcatenated), loaded(CastsWeights)
quadratic_ngrams, waits_in_step = loaded(QuadraticNgrams), loaded(WaitsInStep)
