"""What an option is: its names, how its value is read, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_dsocr.plugin.option_values import yes_or_no

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
        return self.read is yes_or_no

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
