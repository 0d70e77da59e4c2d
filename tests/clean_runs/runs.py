"""Runs of correct implementations, none of which may fail: each is a command of pytest, as a user would type it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PARITY, EVERYTHING = ("suites/parity/test_case.py",), ("suites/contract", "suites/parity", "suites/cache")
VENDOR, VENDOR_ENV = "{vendor}", "{vendor_env}"
"""What stands for the folder of the vendor's files, and for the environment that they run in."""
SEEDED, FAST = "tests.clean_runs.seeded:seed_", "--dsocr-subject=session:fast"
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
    packages: tuple[str, ...] = ()
    """Other versions of what is installed, put in front of it for this run."""
    busy: int = 0
    """Processes beside it that compute for nothing, at the same priority."""

    @property
    def needs_vendor(self) -> bool:
        """Whether the vendor's files are run."""
        return any(VENDOR in option for option in self.options)


def _threads(count: int) -> Mapping[str, str]:
    return {"OMP_NUM_THREADS": str(count)}


RUNS = (
    CleanRun("default", "nothing", ("--dsocr-may-miss=gpu",), EVERYTHING),
    CleanRun("two workers", "-n 2", ("-n2", "--dsocr-may-miss=gpu"), EVERYTHING),
    CleanRun("every page", "all shipped pages", ("--dsocr-pages=all",), environment=_threads(1)),
    CleanRun("four threads", "4 threads", (), environment=_threads(4)),
    CleanRun(
        "sdpa",
        "all shipped pages, another attention kernel; the reference's is eager",
        ("--dsocr-pages=all", "--dsocr-attention=sdpa", "--dsocr-reference-attention=eager"),
    ),
    *(
        CleanRun(f"hash seed {seed}", "PYTHONHASHSEED", (), environment={"PYTHONHASHSEED": seed})
        for seed in ("1", "7", "random")
    ),
    *(
        CleanRun(
            f"generators' seed {seed}", "torch's, numpy's and random's generators", (f"--dsocr-subject={SEEDED}{seed}",)
        )
        for seed in (1, 2)
    ),
    CleanRun("a loaded machine", "4 busy processes beside it", ("-n2", "--dsocr-may-miss=gpu"), EVERYTHING, busy=4),
    CleanRun(
        "Pillow 10.4",
        "the lowest Pillow allowed",
        ("--dsocr-may-miss=gpu",),
        EVERYTHING,
        packages=("pillow==10.4.0",),
    ),
    CleanRun("Pillow 12", "a Pillow between the lowest and the newest", (), packages=("pillow==12.3.0",)),
    CleanRun("Pillow 13", "the newest Pillow", (), packages=("pillow==13.0.0",)),
    CleanRun("the fast session", "all shipped pages, the fast session as the subject", ("--dsocr-pages=all", FAST)),
    CleanRun("the fast session, asked by all suites", "as above", (FAST, "--dsocr-may-miss=gpu"), EVERYTHING),
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
