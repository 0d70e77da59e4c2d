"""Option of a run: its names, its reader, and the places where a user gives it.

pytest loads this in every run, so it imports only the errors of the package.
"""

import os
from argparse import SUPPRESS, Namespace, _ActionsContainer
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pytest_dsocr.base.errors import DsocrError

PREFIX = "dsocr"


@dataclass(frozen=True)
class Option:
    """Option: ``--dsocr-NAME``, ``dsocr_NAME`` in the ini file, ``DSOCR_NAME`` in the environment."""

    name: str
    help: str
    metavar: str = "NAME"
    default: str | None = None
    """Default, as a user types it."""
    unset: str = ""
    """Behaviour of a run without the option, if it has no default."""
    collect: Callable[[tuple[Any, ...]], Any] | None = None
    """Makes one value of several, which are one a line off the command line; None if it may be given once only."""
    reader: str = ""
    """Name of its reader in :mod:`~pytest_dsocr.plugin.option_values`, if it is not the option's name."""

    @property
    def read(self) -> Callable[[str], Any]:
        """Reader of one text. It raises ``DsocrError`` on a bad one."""
        from pytest_dsocr.plugin import option_values

        return cast("Callable[[str], Any]", getattr(option_values, self.reader or self.name))

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return f"--{PREFIX}-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """Name in the ini file."""
        return f"{PREFIX}_{self.name}"

    @property
    def env(self) -> str:
        """Name in the environment."""
        return self.ini.upper()

    @property
    def many(self) -> bool:
        """Whether it may be given several times."""
        return self.collect is not None

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value on the command line."""
        return self.reader == "yes_or_no"

    @property
    def value_if_unset(self) -> Any:
        """Value in a run without the option."""
        if self.is_switch:
            return False
        values = () if self.default is None else (self.read(self.default),)
        return self.collect(values) if self.collect else next(iter(values), None)

    @property
    def full_help(self) -> str:
        """Help text with the default, as ``--help`` shows it."""
        several = "; may be given several times" if self.many else ""
        without = f" (default: {self.default or self.unset})" if self.default or self.unset else ""
        return f"{self.help}{several}{without}"

    def in_environment(self) -> Iterator[tuple[str, Any]]:
        """Yield its variable and the value, if not empty: CI systems set unused variables to an empty text."""
        if (text := os.environ.get(self.env, "")).strip():
            yield self.env, text.splitlines() if self.many else text

    def add_to(self, command: _ActionsContainer, default: str = "") -> None:
        """Add the option to a command of ours, with and without the prefix in its name.

        Args:
            command: the command, or a group of its options. It parses a list of texts, or a switch.
            default: behaviour of the command without it, if it is not that of a run.
        """
        flags = (f"--{self.name.replace('_', '-')}", self.flag)
        text = f"{self.help} (default: {default})" if default else self.full_help
        several: dict[str, Any] = {"action": "append", "metavar": self.metavar, "default": SUPPRESS}
        how = {"action": "store_true"} if self.is_switch else several
        command.add_argument(*flags, dest=self.name, help=text, **how)

    def words(self, options: Namespace) -> Iterator[str]:
        """Yield the arguments of pytest for the option as given to a command of ours."""
        given = getattr(options, self.name, None)
        if self.is_switch:
            yield from [self.flag] if given else []
        else:
            yield from (f"{self.flag}={text}" for text in (given or [])[0 if self.many else -1 :])


def value_of(option: Option, places: Iterable[tuple[str, Any]]) -> Any:
    """Read an option's value from the places where it was given, each with its value. The first one counts.

    Raises:
        DsocrError: on a bad value. The message names the place and lists the valid values.
    """
    for place, given in places:
        try:
            values = tuple(option.read(text) for text in texts_of(given))
        except DsocrError as error:
            raise DsocrError(f"{place}: {error}") from error
        if not values:
            raise DsocrError(f"{place}: names nothing; give {option.help}, or leave it out")
        return option.collect(values) if option.collect else values[0]
    return option.value_if_unset


def texts_of(given: Any) -> Sequence[str]:
    """Return the texts of a parsed value: a switch, a text, or several texts without the empty ones."""
    if isinstance(given, bool):
        return (str(given),)
    return (given,) if isinstance(given, str) else tuple(text for text in given if text.strip())
