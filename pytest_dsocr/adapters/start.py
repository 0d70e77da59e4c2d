"""Starts of adapters of one's own: a commented file that runs as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.subjects.loading import CLI, HTTP

STARTS = Path(__file__).parent / "starts"


@dataclass(frozen=True)
class Start:
    """What a kind of adapter begins as."""

    file: str
    suffix: str
    subject: str
    """How the file is named as a subject."""

    def text(self) -> str:
        """Return its text."""
        return (STARTS / self.file).read_text(encoding="utf-8")


KINDS = {
    "cli": Start("cli.toml", ".toml", f"{CLI}{{file}}"),
    "http": Start("http.toml", ".toml", f"{HTTP}{{file}}"),
    "python": Start("python.py.txt", ".py", "{module}:MyOcr"),
}


def write_start(kind: str, file: Path) -> str:
    """Write a start to a new file, and give the subject's name that it has then.

    Raises:
        DsocrError: where there is such a file, or it cannot be one of that kind.
    """
    start = KINDS[kind]
    if file.suffix != start.suffix:
        raise DsocrError(f"{file} cannot be an adapter of kind {kind}; give a name that ends in {start.suffix}")
    if start.suffix == ".py" and not file.stem.isidentifier():
        raise DsocrError(f"{file} cannot be imported; give a name such as my_ocr.py")
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(start.text())
    except FileExistsError:
        raise DsocrError(f"there is a file {file} already; give another name") from None
    except OSError as error:
        raise DsocrError(f"{file} cannot be written ({error.strerror}); give another name") from None
    return start.subject.format(file=file, module=file.stem)
