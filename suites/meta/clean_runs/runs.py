"""Runs of correct implementations, none of which may fail: each is a command of pytest, as a user would type it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PARITY, EVERYTHING = ("suites/parity/test_case.py",), ("suites/contract", "suites/parity", "suites/cache")
VENDOR, VENDOR_ENV = "{vendor}", "{vendor_env}"
"""What stands for the folder of the vendor's files, and for the environment that they run in."""
LIVE = (f"--dsocr-reference={VENDOR}", f"--dsocr-vendor-env={VENDOR_ENV}")


@dataclass(frozen=True)
class CleanRun:
    """One command."""

    name: str
    varied: str
    """What is other than in a default run."""
    options: tuple[str, ...]
    suites: tuple[str, ...] = PARITY
    environment: Mapping[str, str] = field(default_factory=dict)
    as_vendor: bool = False
    """Whether pytest itself runs in the vendor's environment, as its model is in that process."""

    @property
    def needs_vendor(self) -> bool:
        """Whether the vendor's files are run."""
        return any(VENDOR in option for option in self.options)


def _threads(count: int) -> Mapping[str, str]:
    return {"OMP_NUM_THREADS": str(count)}


RUNS = (
    CleanRun("default", "nothing", ("--dsocr-may-miss=gpu",), EVERYTHING),
    CleanRun("two workers", "-n 2", ("-n2", "--dsocr-may-miss=gpu"), EVERYTHING),
    CleanRun("every page", "all 32 shipped pages", ("--dsocr-pages=all",), environment=_threads(1)),
    CleanRun("four threads", "4 threads", (), environment=_threads(4)),
    CleanRun(
        "sdpa",
        "all 32 shipped pages, another attention kernel; the reference's is eager",
        ("--dsocr-pages=all", "--dsocr-attention=sdpa", "--dsocr-reference-attention=eager"),
    ),
    CleanRun("another hash seed", "PYTHONHASHSEED", (), environment={"PYTHONHASHSEED": "7"}),
    CleanRun("a process of its own", "the subject isolated", ("--dsocr-isolate",)),
    CleanRun(
        "presets and prompts",
        "5 presets, 5 prompts, 12 tokens of each; the vendor's code live",
        (
            "--dsocr-pages=pytest_dsocr/pages/files/generated/figures_201.png",
            *(f"--dsocr-presets={one}" for one in ("tiny", "small", "base", "large", "gundam")),
            *(f"--dsocr-prompts={one}" for one in ("markdown", "ocr", "free", "figure", "describe")),
            "--dsocr-max-new-tokens=12",
            *LIVE,
        ),
    ),
    CleanRun(
        "the vendor's own files",
        "the vendor's code as the subject, its recordings as the reference",
        (f"--dsocr-subject=vendor:{VENDOR}", "--dsocr-may-miss=gpu"),
        EVERYTHING,
        as_vendor=True,
    ),
)
