"""Sessions behind seeded generators of random numbers: ``--dsocr-subject=tests.clean_runs.seeded:seed_7``."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch

from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject


def __getattr__(name: str) -> Callable[[Setup], SessionSubject]:
    word, _, seed = name.partition("_")
    if word != "seed" or not seed.isdigit():
        raise AttributeError(name)

    def seeded(setup: Setup) -> SessionSubject:
        random.seed(int(seed))
        np.random.seed(int(seed))
        torch.manual_seed(int(seed))
        return session_subject(setup)

    return seeded
