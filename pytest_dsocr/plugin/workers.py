"""Number of a run's workers, and the GPU of each."""

import os
import subprocess
from contextlib import suppress
from dataclasses import replace

from pytest_dsocr.base.process import cores
from pytest_dsocr.engine.places import folder_of, synthetic
from pytest_dsocr.records.config import Config, Level
from pytest_dsocr.subjects.loading import level_before_loading

WORKERS = 2
"""Workers of a small run on a CPU. Two save a third of the time of one, if the subject has stages."""
GPU_WORKERS = 4
"""Most workers of a run on GPUs. Four save half of the time of one, since the host prepares pages meanwhile."""
HOST_CORES = 4
"""Cores for each of them."""
COPIES = 5
"""Copies of the weights that a worker may hold: the subject's, the reference's, those for rounding and for a cause."""
CONTEXT_BYTES = 2 << 30
"""Bytes that CUDA and the activations of a worker's processes take besides."""
QUERY = ("nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits")
MIB = 1 << 20


def workers_for(config: Config) -> int:
    """Return the number of a run's workers, or 0 to run in pytest's own process.

    A subject that only reads is done before a worker has started. Each worker loads the subject: one on a GPU has
    several only if it is known to have stages, and if the memory of the GPUs suffices.
    """
    offered = level_before_loading(config.subject, may_import=not config.isolate)
    if config.device.startswith("cuda"):
        has_stages = offered is not None and offered >= Level.STAGES
        most = min(GPU_WORKERS, cores() // HOST_CORES, _fitting(config)) if has_stages else 0
        return most if most > 1 else 0
    is_small = config.checkpoint == "mini" and config.device == "cpu"
    return WORKERS if is_small and offered is not Level.TEXT and cores() >= WORKERS else 0


def on_own_gpu(config: Config, worker: str) -> Config:
    """Return the config of a worker such as ``gw1``. Workers with the device ``cuda`` share the visible GPUs."""
    if config.device != "cuda" or not worker:
        return config
    import torch

    gpu = f"cuda:{int(worker.removeprefix('gw')) % torch.cuda.device_count()}"
    reference = gpu if config.reference_device == "cuda" else config.reference_device
    return replace(config, device=gpu, reference_device=reference)


def _fitting(config: Config) -> int:
    """Return how many workers have room on the GPUs of a run; 0 if that is not known."""
    with suppress(OSError, ValueError, LookupError, subprocess.SubprocessError):
        each = COPIES * _weights_bytes(config) + CONTEXT_BYTES
        free = _free_bytes(config.device)
        return min(free) // each * len(free)
    return 0


def _weights_bytes(config: Config) -> int:
    """Return the bytes of a checkpoint's weights; raise ``DsocrError`` if there is no such checkpoint."""
    if known := synthetic(config.checkpoint):
        from pytest_dsocr.engine.checkpoint import dtype_named
        from pytest_dsocr.engine.model import weights_bytes

        return weights_bytes(known[0], dtype_named(config.dtype))
    return sum(file.stat().st_size for file in folder_of(config.checkpoint).glob("*.safetensors"))


def _free_bytes(device: str) -> list[int]:
    """Return the free bytes of each GPU that workers with this device share, as the driver's tool reports them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    asked = subprocess.run(
        [*QUERY, *(["-i", visible] if visible else [])], capture_output=True, text=True, timeout=10, check=True
    )
    free = [int(line) * MIB for line in asked.stdout.split()]
    _, _, number = device.partition(":")
    return [free[int(number)]] if number else free
