"""``dsocr vendor setup``, ``vendor inspect`` and ``watch-vendor``: install the vendor's code and detect its changes."""

import platform
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import monotonic

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.progress import progress_bar
from pytest_dsocr.base.words import count, listed
from pytest_dsocr.cli.arguments import add, add_environment, add_vendor
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.reference import environment, goldens
from pytest_dsocr.reference.anchors import Anchors, modules_of, read_anchors
from pytest_dsocr.reference.drift import change_of, drifts, to_json
from pytest_dsocr.reference.installation import is_made, set_up
from pytest_dsocr.report.views import change_lines, change_markdown

COMMAND = "dsocr vendor inspect path/to/folder --write"
STAND_IN = {"torchvision": "any, or a stand-in"}


def add_setup(command: ArgumentParser) -> None:
    """Add the vendor's folder, the environment's folder, and the packages to install."""
    add_vendor(command)
    add_environment(command)
    command.add_argument("--reuse-torch", action="store_true", help="use the torch that is installed here")
    what = "install this package as well; may be given several times"
    command.add_argument("--with", action="append", default=[], dest="extra", metavar="PACKAGE", help=what)


def setup(options: Namespace) -> Iterator[str]:
    """Make the environment unless it exists, and yield lines for the user."""
    environment.check_vendor_folder(options.vendor)
    if options_of_pip := [name for name in options.extra if name.startswith("-")]:
        raise DsocrError(f"--with takes packages, not {options_of_pip[0]}; configure uv by its own variables (UV_...)")
    plan = environment.plan_here(reuse_torch=options.reuse_torch, extra=tuple(options.extra))
    folder = environment.named_folder(options.env) or plan.folder
    there, started_s = is_made(plan, folder), monotonic()
    yield f"environment {folder}"
    if not there:
        gb = sum(file.size or 0 for file in metadata.files("torch") or ()) / 1e9  # of the same version
        own_torch = "" if plan.torch_from else f", and what torch takes, here {gb:.1f} GB before CUDA's libraries"
        yield f"takes       0.3 GB and one or two minutes{own_torch}"
    with progress_bar(unit=" packages", desc="setup") as bar:
        for step in set_up(plan, folder):
            if not sys.stderr.isatty():
                yield f"  {step}"
            bar.set_postfix_str(step)
            bar.update()
    if stamp := environment.read_stamp(folder):
        yield "packages    " + ", ".join(f"{name} {version}" for name, version in stamp.versions.items())
        yield "torch       " + (f"reused from {', '.join(plan.torch_from)}" if plan.torch_from else "its own")
        yield f"made        {f'on {stamp.date}; nothing to do' if there else f'in {monotonic() - started_s:.0f} s'}"
    yield f"next        dsocr vendor inspect {options.vendor}"


def add_watch(command: ArgumentParser) -> None:
    """Add the vendor's folder and the anchors to compare it with."""
    add_vendor(command)
    what = "file to compare with (default: ./golden/vendor/anchors.json, or else the shipped one)"
    add(command, "--anchors", what, type=Path, metavar="FILE")
    golden = "folder with vendor/ (recordings) (default: ./golden, or else the shipped one)"
    command.add_argument("--golden", type=Path, metavar="FOLDER", help=golden)
    command.add_argument("--markdown", type=Path, metavar="FILE", help="also write the text of an issue")


def watch(options: Namespace) -> Iterator[str]:
    """Yield all changes. The exit status is 1 if there is any."""
    places = goldens.recording_places(options.golden or goldens.golden_folder())
    anchors = options.anchors or goldens.anchors_file(environment.check_vendor_folder(options.vendor))
    change = change_of(options.vendor, anchors, places)
    options.status = int(not change.is_none)
    yield from change_lines(change)
    if options.markdown:
        write_whole(options.markdown, change_markdown(change).encode("utf-8", "replace"))
        yield f"{'written':<16}{options.markdown}"


def add_inspect(command: ArgumentParser) -> None:
    """Add the vendor's folder, its environment, and the file for anchors."""
    add_vendor(command)
    add_environment(command)
    command.add_argument("--write", action="store_true", help="write the places in the code to --anchors")
    add(command, "--anchors", "file to write to (default: anchors.json in ./golden/vendor)", type=Path, metavar="FILE")


def inspect(options: Namespace) -> Iterator[str]:
    """Describe the files in a folder."""
    anchors = read_anchors(options.vendor)
    yield f"vendor       {options.vendor.absolute()}"
    try:
        python, absent = environment.find_environment(options.env), ""
    except DsocrError as error:
        if environment.named_folder(options.env):
            raise
        python, absent = None, str(error)
    yield f"environment  {python or absent}"
    yield from _files(anchors)
    family = environment.check_vendor_folder(options.vendor)
    yield from _symbols(anchors, family.vendor.contract)
    yield from _details(anchors, options.vendor)
    yield from _copies(anchors, options.vendor)
    yield from _packages(options.vendor)
    yield ""
    if options.write:
        own = goldens.anchors_of(goldens.OWN / goldens.RECORDINGS, family)
        yield from _write(anchors, options.anchors or own)
    if python:  # last, because what is shown above does not need it
        yield f"imported     with {_versions(python, options.vendor)}"
    yield f"next         dsocr watch-vendor {options.vendor}"


def _files(anchors: Anchors) -> Iterator[str]:
    yield ""
    yield f"{'file':<30}{'bytes':>8}  sha256"
    for name, file in anchors.files.items():
        yield f"{name:<30}{file.bytes:>8}  {file.sha256}"


def _symbols(anchors: Anchors, contract: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"{'stage':<14}{'anchor':<54}{'where':<32}tree"
    for stage, symbol in ((stage, symbol) for stage, symbols in contract.items() for symbol in symbols):
        if symbol in anchors.symbols:
            anchor = anchors.symbols[symbol]
            yield f"{stage:<14}{symbol:<54}{f'{anchor.file}:{anchor.line}':<32}{anchor.tree[:12]}"
        else:
            yield f"{stage:<14}{symbol:<54}missing"


def _details(anchors: Anchors, folder: Path) -> Iterator[str]:
    """Yield the details, with the text of each line from the user's own file."""
    yield ""
    yield f"{'detail':<16}{'where':<34}code"
    for anchor in anchors.symbols.values():
        lines = (folder / anchor.file).read_text(encoding="utf-8", errors="replace").split("\n")
        for name, detail in anchor.details.items():
            for number in detail.lines:
                yield f"{name:<16}{f'{anchor.file}:{number}':<34}{lines[number - 1].strip()}"


def _copies(anchors: Anchors, folder: Path) -> Iterator[str]:
    """Yield other copies of the vendor's module that transformers may run, and their differences."""
    yield ""
    cache = environment.modules_cache()
    copies = environment.copies_of(folder, cache)
    yield f"copies       {count(len(copies), 'other')} in {cache}, from which transformers runs code"
    for copy in copies:
        name = copy.relative_to(cache)
        try:
            found = read_anchors(copy)
        except DsocrError as error:
            yield f"  {name}: {error}"
            continue
        differing = [file for file, one in anchors.files.items() if found.files[file].sha256 != one.sha256]
        drifted = drifts(anchors, found)
        how = "" if drifted or not differing else ", in comments or layout alone"
        yield f"  {name}: {f'another {listed(differing)}{how}' if differing else 'the same files'}"
        yield from (f"    {line}" for drift in drifted for line in drift.lines)


def _packages(folder: Path) -> Iterator[str]:
    yield ""
    yield f"{'module':<16}needed"
    pins = dict(pin.split("==") for pin in environment.plan_here().pins if "==" in pin)
    wanted = STAND_IN | pins | {"PIL": pins["pillow"]}
    for module, is_required in modules_of(folder).items():
        yield f"{module:<16}{wanted.get(module, 'any') if is_required else 'optional'}"


def _versions(python: Path, folder: Path) -> str:
    """Import the files with another interpreter and return its versions. Raise ``DsocrError`` if this fails."""
    from pytest_dsocr.reference.live import LiveReference  # brings torch

    with LiveReference(folder, MINI, python=python) as reference:
        return ", ".join(f"{name} {version}" for name, version in reference.import_code().items())


def _write(anchors: Anchors, path: Path) -> Iterator[str]:
    provenance = {"command": COMMAND, "date": datetime.now(UTC).date().isoformat(), "python": platform.python_version()}
    goldens.check_writable(path, "--anchors FILE")
    write_whole(path, to_json(anchors, provenance).encode(), shared=True)
    yield f"written      {path}"
