"""Parameters and cache by arithmetic are those of real models; nothing heavy is imported to find them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from pytest_dsocr.cost.model import cache_bytes, parameters
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.weights import read_headers
from pytest_dsocr.families import DEFAULT
from tests.conftest import model_of

IMPORTS = """
import importlib, pkgutil, sys
import pytest_dsocr.cost as room
for module in pkgutil.iter_modules(room.__path__):
    importlib.import_module(f"{room.__name__}.{module.name}")
print([name for name in ("torch", "numpy", "PIL", "scipy", "transformers") if name in sys.modules])
"""


@pytest.mark.parametrize("checkpoint", ["mini", "synthetic:tiny", "synthetic:small"])
def test_each_modules_parameters_are_those_of_the_model(checkpoint: str) -> None:
    arch, found = resolve(checkpoint).architecture, Counter[str]()
    computed = parameters(arch)
    for name, tensor in model_of(Session.from_checkpoint(checkpoint)).state_dict().items():
        module = name
        while module not in computed:
            module = module.rpartition(".")[0]
        found[module] += tensor.numel()
    assert found == computed


def test_they_are_those_of_the_file() -> None:
    checkpoint = resolve("mini")
    assert checkpoint.folder is not None
    bf16_bytes = sum(tensor.n_bytes for tensor in read_headers(checkpoint.folder).values())
    assert 2 * sum(parameters(checkpoint.architecture).values()) == bf16_bytes


@pytest.mark.parametrize("checkpoint", ["mini", "synthetic:tiny"])
def test_the_caches_bytes_are_the_sessions(checkpoint: str) -> None:
    session = Session.from_checkpoint(checkpoint)
    prompt_ids = session.tokenizer.encode("Free OCR.")
    work = Workload((10, 10), DEFAULT.presets["tiny"], 1 + len(prompt_ids), 4, dtype="float32")
    cache = session.model.new_cache()
    for tokens in (work.prompt_tokens, 1, 1, 1):
        ids = session.model.lm_head.weight.new_zeros(1, tokens).long()  # type: ignore[attr-defined]
        session.model.decode(session.model.embed(ids), cache)
    held = [side(layer) for layer in range(cache.layers) for side in (cache.keys, cache.values)]
    assert sum(one.nbytes for one in held) == cache_bytes(model_of(session).arch, work)


def test_nothing_heavy_is_imported() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
