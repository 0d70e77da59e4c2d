"""Every option, in one table: its names, how its value is read, and its help text."""

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_dsocr.compare.tolerances import BUDGETS, LOSSES
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.models import NAMES, PROMPT_NAMES
from pytest_dsocr.observation.config import MISSING
from pytest_dsocr.observation.provenance import DTYPES_OF_VENDOR, OF_VENDOR
from pytest_dsocr.pages.page_list import SUBSETS
from pytest_dsocr.plugin import option_values as read

PREFIX = "dsocr"


@dataclass(frozen=True)
class Option:
    """One option: ``--dsocr-NAME``, ``dsocr_NAME`` in the ini file, ``DSOCR_NAME`` in the environment."""

    name: str
    read: Callable[[str], Any]
    """Turns one text into its value; raises ``DsocrError`` on a bad one."""
    help: str
    metavar: str = "NAME"
    default: str | None = None
    """As a user types it."""
    unset: str = ""
    """Where there is no default: what a run without the option does."""
    many: bool = False
    """May be given several times; in the ini file and the environment one a line."""

    @property
    def flag(self) -> str:
        """On the command line."""
        return f"--{PREFIX}-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """In the ini file."""
        return f"{PREFIX}_{self.name}"

    @property
    def env(self) -> str:
        """In the environment."""
        return self.ini.upper()

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value on the command line."""
        return self.read is read.yes_or_no

    @property
    def value_if_unset(self) -> Any:
        """The value in a run without it."""
        if self.is_switch:
            return False
        values = () if self.default is None else (self.read(self.default),)
        return values if self.many else next(iter(values), None)

    @property
    def full_help(self) -> str:
        """What it is for, and what a run without it does, as ``--help`` shows it."""
        several = "; may be given several times" if self.many else ""
        without = f" (default: {self.default or self.unset})" if self.default or self.unset else ""
        return f"{self.help}{several}{without}"

    def in_environment(self) -> Iterator[tuple[str, Any]]:
        """Yield its variable and the value there, if any; CI systems set those that are not filled in to nothing."""
        if (text := os.environ.get(self.env, "")).strip():
            yield self.env, text.splitlines() if self.many else text

    def add_to(self, command: ArgumentParser, default: str = "") -> None:
        """Add it to a command of our own, with and without the prefix in its name.

        Args:
            command: which parses it to a list of texts, or to a switch.
            default: what the command does without it, where that is another than a run's.
        """
        flags = (f"--{self.name.replace('_', '-')}", self.flag)
        text = f"{self.help} (default: {default})" if default else self.full_help
        if self.is_switch:
            command.add_argument(*flags, dest=self.name, action="store_true", help=text)
        else:
            how: dict[str, Any] = {"dest": self.name, "metavar": self.metavar, "default": SUPPRESS}
            command.add_argument(*flags, action="append", help=text, **how)

    def words(self, options: Namespace) -> Iterator[str]:
        """Yield what a command of our own was given of it, as pytest takes it."""
        given = getattr(options, self.name, None)
        if self.is_switch:
            yield from [self.flag] if given else []
        else:
            yield from (f"{self.flag}={text}" for text in (given or [])[0 if self.many else -1 :])


def value_of(option: Option, places: Iterable[tuple[str, Any]]) -> Any:
    """Read an option's value.

    Args:
        option: whose.
        places: where it was given, and what was given there; the first counts.

    Raises:
        DsocrError: on a bad value. The message says where it was given, and lists the valid ones.
    """
    for place, given in places:
        try:
            values = tuple(option.read(text) for text in texts_of(given))
        except DsocrError as error:
            raise DsocrError(f"{place}: {error}") from error
        if not option.many:
            return values[0]
        if values:
            return values
        raise DsocrError(f"{place}: names nothing; give {option.help}, or leave it out")
    return option.value_if_unset


def texts_of(given: Any) -> Sequence[str]:
    """Return the texts of a value as parsed: a switch's, one, or several; empty ones of several are left out."""
    if isinstance(given, bool):
        return (str(given),)
    return (given,) if isinstance(given, str) else tuple(text for text in given if text.strip())


DTYPES = ("float32", "bfloat16", "float16")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")

OPTIONS = (
    Option("subject", read.subject, f"implementation under test: {read.SUBJECTS}", "SUBJECT", default="session"),
    Option("isolate", read.yes_or_no, "run the subject in a process of its own, so that a crash costs one case"),
    Option(
        "subject_time_limit",
        read.seconds,
        "longest that one call of the subject may take: reading a page, a stage, a step",
        "SECONDS",
        default="3600",
    ),
    Option(
        "checkpoint",
        read.checkpoint,
        "weights: mini (embedded), a checkpoint's folder, synthetic:NAME (random), or a hub name in the local cache",
        "CHECKPOINT",
        default="mini",
    ),
    Option(
        "model",
        read.one_of(*NAMES),
        f"the model whose weights they are: {', '.join(NAMES)}",
        "MODEL",
        unset="that of the checkpoint's architectures",
    ),
    Option(
        "reference",
        read.reference,
        "what the subject is compared with: recorded, session (where nothing is recorded), a folder with the vendor's "
        "Python files to run live, or a folder of recordings",
        "REFERENCE",
        default="recorded",
    ),
    Option(
        "vendor_env",
        read.present_folder,
        "environment in which the vendor's code runs",
        "FOLDER",
        unset="the one that dsocr vendor setup made",
    ),
    Option(
        "time_limit",
        read.seconds,
        "longest that a live reference may go without a sign of progress",
        "SECONDS",
        default="600",
    ),
    Option(
        "pages",
        read.page,
        f"image, folder of images, list file, PDF, or shipped pages: {', '.join(SUBSETS)}",
        "PAGES",
        default="dev-3",
        many=True,
    ),
    Option(
        "shard",
        read.shard,
        "run only the i-th of n parts: every n-th page from the i-th on; what is of no page is in the first",
        "I/N",
        unset="all pages",
    ),
    Option("presets", read.preset, "tiny, small, base, large or gundam", "PRESET", default="gundam", many=True),
    Option(
        "prompts",
        read.prompt,
        f"{', '.join(PROMPT_NAMES)}, or a text with <image> in it",
        "PROMPT",
        default="markdown",
        many=True,
    ),
    Option(
        "repeat",
        read.times,
        "readings of each page by one process, after itself and others; 149 show a fault in one of 50 at 95 per cent",
        "READINGS",
        default="1",
    ),
    Option(
        "max_new_tokens", read.tokens, "stop after this many tokens", "TOKENS", unset="as many as the vendor's code"
    ),
    Option("device", read.device, "the subject's device: cpu, cuda or cuda:N", "DEVICE", default="cpu"),
    Option("dtype", read.one_of(*DTYPES), f"the subject's dtype: {', '.join(DTYPES)}", "DTYPE", default="float32"),
    Option("attention", read.one_of(*ATTENTIONS), f"the subject's attention: {', '.join(ATTENTIONS)}", default="eager"),
    Option(
        "reference_device",
        read.reference_device,
        "the reference's device: cpu, cuda, cuda:N, or that of a recording, such as nvidia-h200",
        "DEVICE",
        unset="the subject's, or that of the nearest recording",
    ),
    Option(
        "reference_dtype",
        read.one_of(*DTYPES_OF_VENDOR),
        f"the reference's dtype: {', '.join(DTYPES_OF_VENDOR)}",
        "DTYPE",
        unset="the subject's, or that of the nearest recording",
    ),
    Option(
        "reference_attention",
        read.one_of(*OF_VENDOR),
        f"the reference's attention: {', '.join(OF_VENDOR)}",
        unset="the subject's, or that of the nearest recording",
    ),
    Option(
        "tolerances",
        read.tolerance,
        "how far the two sides may differ, such as boxes=1, coords=0.02 or seam=1e-3",
        "NAME=VALUE",
        unset="by dtype, device and attention",
        many=True,
    ),
    Option(
        "budget",
        read.budget,
        f"what a port in fewer bits may lose: that of {', '.join(BUDGETS)}, or NAME=VALUE of {', '.join(LOSSES)}",
        "PRECISION|NAME=VALUE",
        unset="that of the precision which the subject declares, if any",
        many=True,
    ),
    Option(
        "slower",
        read.slower,
        "how much slower than its baseline a stage may be, such as decode=0.05, or 0.05 for each",
        "STAGE=SHARE",
        unset="0.05, and half a per cent of the page",
        many=True,
    ),
    Option("rounds", read.rounds, "most rounds that are timed before a stage is called AMBIGUOUS", "ROUNDS", "48"),
    Option("baseline_update", read.yes_or_no, "accept the times of this run as the baseline of this machine"),
    Option("baseline_days", read.days, "greatest age of a baseline in days", "DAYS", "180"),
    Option(
        "may_miss",
        read.one_of(*MISSING),
        f"what is allowed to be missing without failing the run: {', '.join(MISSING)}",
        unset="nothing",
        many=True,
    ),
    Option(
        "explain",
        read.seconds_or_none,
        "seconds to search for the mistake that explains a failure, at the first case of each stage; 0 turns it off",
        "SECONDS",
        default="20",
    ),
    Option(
        "level",
        read.level,
        "level that the subject must offer, L0 to L3; tests above it are not run",
        "LEVEL",
        unset="what the subject offers",
    ),
    Option("no_skip", read.yes_or_no, "turn every skipped test into a failure, except what --dsocr-may-miss allows"),
    Option(
        "out",
        read.folder,
        "folder for dsocr.json, index.html, and each page with the boxes of both sides",
        "FOLDER",
        unset="nothing is written",
    ),
    Option(
        "golden",
        read.folder,
        "folder with vendor/ (recordings), snapshots/ and baselines/",
        "FOLDER",
        unset="./golden, or else the shipped one",
    ),
    Option(
        "xfails",
        read.ledger,
        "file of tests that must keep failing while listed (strict xfail), a line each: NODEID  # until DATE: reason",
        "FILE",
        unset="none",
    ),
)
