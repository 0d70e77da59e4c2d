"""Which presets and prompts a subject offers; whatever else is asked of it is not offered, which is no verdict."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import listed

if TYPE_CHECKING:
    from pytest_dsocr.observation.case import Case

VALID = {"presets": DEFAULT.presets, "prompts": DEFAULT.prompts}


class NotOfferedError(DsocrError):
    """A case has a preset or a prompt that the subject does not offer."""


@dataclass(frozen=True)
class Offers:
    """The names of what is offered; None where it is all."""

    presets: Collection[str] | None = None
    prompts: Collection[str] | None = None

    def __post_init__(self) -> None:
        for what, valid in VALID.items():
            given = getattr(self, what)
            if given is not None and (not given or (unknown := [*filter(lambda one: one not in valid, given)])):
                told = repr(unknown[0]) if given else "none"
                raise DsocrError(f"the subject's {what} name {told}; give names of {', '.join(valid)}")

    @classmethod
    def of(cls, subject: Any) -> Offers:
        """Give what a subject, or a class of one, says that it offers; raise ``DsocrError`` where it names another."""
        given = {what: getattr(subject, what, None) for what in VALID}
        return cls(**{what: None if names is None else tuple(map(str, names)) for what, names in given.items()})

    def check(self, case: Case) -> None:
        """Raise :class:`NotOfferedError` where a case is not of them."""
        from pytest_dsocr.observation.case import prompt_name  # brings Pillow, and levels are told without

        asked = {"preset": (case.preset.name, self.presets), "prompt": (prompt_name(case.prompt), self.prompts)}
        for what, (name, offered) in asked.items():
            if offered is not None and name not in offered:
                raise NotOfferedError(f"not offered: the {what} {name}; the subject offers {listed([*offered])}")

    @property
    def told(self) -> str:
        """What is said of it beside its level; empty where it offers all."""
        given = {what: getattr(self, what) for what in VALID}
        return "".join(f"; {what}: {', '.join(names)}" for what, names in given.items() if names is not None)
