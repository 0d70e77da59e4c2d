"""Pages and cases from what a user names: images, folders, lists, PDFs, subsets of the shipped pages.

A page that cannot be opened becomes a :class:`BadPage` and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.reading import is_regular
from pytest_dsocr.contract.image import images_in, load_image
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.page_list import SUBSETS, BadPage, is_list, no_page, page_named, read_list, shipped
from pytest_dsocr.records.case import Case, PageFaultError, make_case
from pytest_dsocr.records.config import Shard

PDF_SUFFIX = ".pdf"


@dataclass(frozen=True)
class Cases:
    """The cases to compare, and the pages that were named but cannot be opened."""

    good: tuple[Case, ...]
    bad: tuple[BadPage, ...]

    def readable(self) -> Cases:
        """Load every page, and move the cases of those that cannot be loaded to ``bad``."""
        unreadable: dict[Path, str] = {}
        for case in self.good:
            try:
                checked_case(case)
            except PageFaultError as fault:
                unreadable[case.page] = str(fault)
        good = tuple(case for case in self.good if case.page not in unreadable)
        bad = (*self.bad, *(BadPage(page, why) for page, why in unreadable.items()))
        return Cases(good, bad)


def make_cases(
    named: Sequence[str | Path],
    prompts: Sequence[str],
    presets: Sequence[str],
    max_new_tokens: int | None = None,
    shard: Shard | None = None,
    *,
    family: ModelSpec,
) -> Cases:
    """Return every page named in every preset with every prompt, each case once, and the bad pages.

    With the family's prompt for several pages a folder, or a PDF, is one case.

    If two pages would have the same name in reports, the second is a bad page. No page is loaded. Of a shard, only the
    cases of its own pages are given.

    Raises:
        DsocrError: if nothing has such a name, a list cannot be read, there is no such preset, or a shard has no page.
    """
    by_id: dict[str, Case] = {}
    bad: dict[Path, BadPage] = {}
    own: dict[Path, bool] = {}
    single = [prompt for prompt in prompts if prompt != family.pages_prompt]
    together = [family.pages_prompt] if len(single) < len(prompts) else []
    asked = [(page, single) for page in (pages_in(named) if single else ())]
    for page, own_prompts in [*asked, *((page, together) for page in (together_in(named) if together else ()))]:
        path = page.path if isinstance(page, BadPage) else page
        own.setdefault(path, shard is None or shard.has(len(own)))
        if isinstance(page, BadPage):
            bad.setdefault(page.path, page)
            continue
        for case in (
            make_case(page, prompt, preset, max_new_tokens, family=family)
            for preset in presets
            for prompt in own_prompts
        ):
            other = by_id.setdefault(case.id, case)
            if other != case:
                why = f"{other.page} and {case.page} are both {other.id}; give pages of different names"
                bad.setdefault(page, BadPage(page, why))
    if shard is not None and not any(own.values()):
        raise DsocrError(f"shard {shard} has no page, for there are only {len(own)}; make no more shards than pages")
    return Cases(
        tuple(case for case in by_id.values() if own[case.page]), tuple(one for one in bad.values() if own[one.path])
    )


def pages_in(named: Sequence[str | Path]) -> Iterator[Path | BadPage]:
    """Yield the pages of each name: a file, a folder's images in order, a list's, a PDF's, or shipped ones.

    Raises:
        DsocrError: if nothing has such a name, or a list cannot be read.
    """
    for path in map(page_named, named):
        if path.is_dir():
            yield from _images_in(path)
        elif is_list(path):
            yield from read_list(path)
        elif is_pdf(path) and path.is_file():
            from pytest_dsocr.pages.rendering import pages_of_pdf

            yield from pages_of_pdf(path)
        elif path.is_file():
            yield path
        elif str(path) in SUBSETS:
            yield from shipped(str(path))
        elif path.exists():
            yield BadPage(path, _why_no_file(path))
        else:
            raise PageFaultError(no_page(path))


def together_in(named: Sequence[str | Path]) -> Iterator[Path | BadPage]:
    """Yield what is read in one prompt: a folder, a PDF as the folder of its pages; else as :func:`pages_in`."""
    for path in map(Path, named):
        pages = [*pages_in([path])]
        if not (path.is_dir() or is_pdf(path)):
            yield from pages
        else:
            bad = [page for page in pages if isinstance(page, BadPage)]
            yield from bad[:1] or dict.fromkeys(page.parent for page in pages if isinstance(page, Path))


def is_pdf(path: Path) -> bool:
    """Tell by its suffix whether a path names a PDF."""
    return path.suffix.lower() == PDF_SUFFIX


def first_pages(named: Sequence[str | Path], count: int = 1) -> list[Path]:
    """Yield the first ``count`` pages that can be read, or as many as there are.

    Raises:
        PageFaultError: if there is none.
    """
    faults: list[str] = []

    def readable() -> Iterator[Path]:
        for page in pages_in(named):
            try:
                yield checked(page)
            except PageFaultError as fault:
                faults.append(str(fault))

    found = list(islice(readable(), count))
    if not found:
        raise PageFaultError(f"none of the pages can be read; the first: {faults[0]}")
    return found


def check_any(named: Sequence[str | Path]) -> None:
    """Raise ``PageFaultError`` where no page of all that is named can be read; a PDF is taken for pages unopened."""
    if not any(is_pdf(Path(one)) or str(one) in SUBSETS for one in named):
        first_pages(named)


def checked(page: Path | BadPage) -> Path:
    """Return a page that can be loaded, or raise a ``PageFaultError`` that says why it cannot."""
    if isinstance(page, BadPage):
        raise PageFaultError(page.why)
    try:
        load_image(page)
    except DsocrError as error:
        raise PageFaultError(str(error)) from None
    return page


def checked_case(case: Case | BadPage) -> Case:
    """Return a case whose page can be loaded, or raise a ``PageFaultError`` that says why it cannot."""
    if isinstance(case, BadPage):
        raise PageFaultError(case.why)
    case.page_sha256  # noqa: B018 - loads the page once; the hash is kept for whoever looks the case up
    return case


def _images_in(folder: Path) -> Iterator[Path | BadPage]:
    try:
        images = images_in(folder)
    except OSError as error:
        yield BadPage(folder, f"the folder {folder} cannot be read ({error.strerror}); give one that can")
        return
    if not images:
        yield BadPage(folder, f"the folder {folder} holds no images; give one that does, or image files")
    for image in images:
        yield image if is_regular(image) else BadPage(image, _why_no_file(image))


def _why_no_file(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder with the name of an image; take it away, or name it as a folder of pages"
    return f"{path} is no file that can be opened; take it away, or mend it"
