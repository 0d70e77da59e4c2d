"""Names of tensors and comparisons: strings in JSON and messages, values with fields in code."""

import re
from enum import StrEnum
from typing import NamedTuple, Self

from pytest_dsocr.models.spec import VIEWS

_TENSOR = re.compile(rf"([^./]+)(?:\.({'|'.join(VIEWS)}))?(?:/(0|[1-9][0-9]*))?")


class TensorName(NamedTuple):
    """Name of a stage's output, such as ``STAGE.page``, or of a block's, such as ``STAGE.page/3``."""

    stage: str
    view: str = ""
    """``crops`` or ``page``; empty if the tensor covers all views."""
    block: int | None = None
    """Index of a block or layer; None for the output of the whole stage."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name; a text of another form is kept whole as the stage."""
        if not (found := _TENSOR.fullmatch(text)):
            return cls(text)
        stage, view, block = found.groups(default="")
        return cls(stage, view, int(block) if block else None)

    @property
    def whole(self) -> Self:
        """The output of the whole stage."""
        return self._replace(block=None)

    def __str__(self) -> str:
        view = f".{self.view}" if self.view else ""
        return f"{self.stage}{view}" if self.block is None else f"{self.stage}{view}/{self.block}"


class ComparisonKind(StrEnum):
    """Kinds of comparisons, each with the form of its names."""

    ROUNDING = "{}.rounding"
    """Rounding of a stage, compared with the vendor's kernels."""
    TIME = "perf/{}"
    """A time or a count, compared with a baseline."""
    ODD_PAGE = "text/odd/{}"
    """The text of a page with an unusual file format, size or mode."""
    VALUE = "{}"
    """A tensor, an input or an output."""

    def name_of(self, thing: str) -> str:
        """Return the name of a comparison of this kind."""
        return self.format(thing)


class ComparisonName(NamedTuple):
    """Identity of a comparison."""

    kind: ComparisonKind
    thing: str
    """The compared tensor, output, quantity or page."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name; every text is the name of some comparison."""
        for kind in ComparisonKind:
            before, after = kind.split("{}")
            if text.startswith(before) and text.endswith(after):
                return cls(kind, text[len(before) : len(text) - len(after)])
        raise AssertionError  # a value's name has any form

    @property
    def stage(self) -> str:
        """The stage of a tensor, and the first word of any other name."""
        text = self.thing if self.kind is ComparisonKind.ROUNDING else str(self)
        return TensorName.parse(text.partition("/")[0]).stage

    def __str__(self) -> str:
        return self.kind.name_of(self.thing)
