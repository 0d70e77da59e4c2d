"""The pages of PDFs as image files, each rendered once, in a folder that only the user can write to."""

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import metadata
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import read_file
from pytest_dsocr.contract.pdf import DEFAULT_DPI, Pdf
from pytest_dsocr.pages.page_list import BadPage

OWNERS_ALONE = 0o700
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def length_of_pdf(path: Path) -> int:
    """Return how many pages a PDF has.

    Raises:
        DsocrError: if it cannot be opened, or pypdfium2 is not installed.
    """
    with closing(Pdf(read_file(path), str(path))) as pdf:
        return len(pdf)


def pages_of_pdf(path: Path, numbers: Sequence[int] | None = None) -> Iterator[Path | BadPage]:
    """Render a PDF's pages without loss into files, which are found again by the PDF's content and how it is rendered.

    Processes that want one PDF at the same time wait for the one that renders it. A page that cannot be rendered, or a
    PDF that cannot be opened, is a bad page.

    Args:
        numbers: of the pages wanted, the first is 1; all of them if left out.
    """
    try:
        data = read_file(path)
        with closing(Pdf(data, str(path))) as pdf, _alone_in(_private_folder() / _how(data)) as folder:
            wanted = range(1, len(pdf) + 1) if numbers is None else numbers
            pages = folder / path.stem  # nothing else is in it, so that it can be read as one
            pages.mkdir(exist_ok=True)
            yield from [_page(pdf, number, pages / f"{path.stem}-p{number:03}.png") for number in wanted]
    except DsocrError as error:
        yield BadPage(path, str(error))
    except OSError as error:
        yield BadPage(path, f"the pages of {path} cannot be written ({error}); make room in {tempfile.gettempdir()}")


def _private_folder() -> Path:
    """Return the user's folder for rendered pages, which all of the user's processes share.

    Raises:
        DsocrError: where somebody else made what is at its place, or could have written into it.
    """
    folder = Path(tempfile.gettempdir(), f"dsocr-pdf-{os.getuid()}")
    with suppress(FileExistsError):  # a link into nothing, or a file
        folder.mkdir(mode=OWNERS_ALONE, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & WRITABLE_BY_OTHERS:
        raise DsocrError(f"{folder} is not a folder that you alone can write to; remove it, or set TMPDIR to another")
    folder.chmod(OWNERS_ALONE)
    return folder


def _how(data: bytes) -> str:
    """Name everything that the pixels depend on."""
    return f"{hashlib.sha256(data).hexdigest()[:16]}-{DEFAULT_DPI}-dpi-pypdfium2-{metadata.version('pypdfium2')}"


@contextmanager
def _alone_in(folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _page(pdf: Pdf, number: int, target: Path) -> Path | BadPage:
    try:
        if not target.exists():
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            pdf.render(number).save(part, format="png", compress_level=1)
            part.replace(target)
    except DsocrError as error:
        return BadPage(target, str(error))
    return target
