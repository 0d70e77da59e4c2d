"""Over how many workers of pytest-xdist ``dsocr compare`` spreads its tests, and which GPU each worker has."""

from __future__ import annotations

from dataclasses import replace

from pytest_dsocr.foundation.process import cores
from pytest_dsocr.observation.config import Config
from pytest_dsocr.observation.level import Level
from pytest_dsocr.subjects.loading import level_before_loading

SPREAD = "--numprocesses=auto"
"""What ``dsocr compare`` adds where the user says nothing to pytest; in this very form, which marks it as ours."""
WORKERS = 2
"""Beside one, two save a third of the time of a subject with stages; each costs a start and the memory of a model."""


def workers_for(config: Config) -> int:
    """Return how many processes a run is spread over.

    None beside pytest's own where the subject reads and no more, which takes no longer than another process's start,
    and where the model is large or has a GPU.
    """
    offered = level_before_loading(config.subject, may_import=not config.isolate)
    is_small = config.checkpoint == "mini" and config.device == "cpu"
    return WORKERS if is_small and offered is not Level.TEXT and cores() >= WORKERS else 0


def on_own_gpu(config: Config, worker: str) -> Config:
    """Return a worker's config: of ``cuda`` one GPU for each worker in turn, of those that the caller made visible.

    Args:
        config: as the options say.
        worker: its name, such as ``gw1``; empty where there are none.
    """
    if config.device != "cuda" or not worker:
        return config
    import torch

    gpu = f"cuda:{int(worker.removeprefix('gw')) % torch.cuda.device_count()}"
    reference = gpu if config.reference_device == "cuda" else config.reference_device
    return replace(config, device=gpu, reference_device=reference)
