"""``dsocr new-adapter``, ``export`` and ``dump``: connect another implementation, and convert a checkpoint for it."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_dsocr import adapters
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import aligned, in_shell
from pytest_dsocr.cli.arguments import add, add_model, add_reading, case_of, setup_of
from pytest_dsocr.engine.places import architecture_of

STARTS = Path(adapters.__file__).parent / "starts"
"""Folder of commented templates."""
KINDS = {"cli": (".toml", "cli:{file}"), "http": (".toml", "http:{file}"), "python": (".py", "{module}:MyOcr")}
"""Suffix of an adapter's file and its name as a subject, by kind."""
SECTION = "    # --- "
"""Comment that starts each section of the Python template."""
STAGED = ("read", "inputs", "vision", "decoder", "state")
METHODS = {
    **{"L0": STAGED[:1], "L1": STAGED[:2], "L2": STAGED, "L3": (*STAGED, "module")},
    **{"inputs": ("inputs",), "vision": ("vision",), "decoder": ("decoder", "state")},
}
"""Sections of the Python template, by level or by part of an implementation."""
FORMS = ("hf", "mlx", "gguf")
NEXT = {
    "hf": "load it as a checkpoint of transformers, or name it to this project: dsocr compare --checkpoint={folder}",
    "mlx": "dsocr compare --subject=pytest_dsocr.adapters.mlx_vlm:MlxVlm writes its own; a program "
    " of your own loads this with mlx_vlm.load, after pytest_dsocr.adapters.mlx_vlm.resize",
    "gguf": "llama-mtmd-cli -m {folder}/model.gguf --mmproj {folder}/mmproj.gguf",
}


def add_new_adapter(command: ArgumentParser) -> None:
    """Add the arguments: kind of adapter, file and level."""
    command.add_argument("kind", choices=[*KINDS], help="a command, a server, or a class in Python")
    command.add_argument("file", type=Path, metavar="FILE", help="the file to write: .toml; .py for python")
    level = "for python: its level, or the part that it does while the engine does the rest (default: L0)"
    command.add_argument("--level", choices=[*METHODS], help=level)


def new_adapter(options: Namespace) -> Iterator[str]:
    """Write the template of an adapter, and say how to use it."""
    suffix, subject = KINDS[options.kind]
    file: Path = options.file
    if options.level and options.kind != "python":
        raise DsocrError(f"--level is for adapters in Python; leave it out for {options.kind}")
    if file.suffix != suffix:
        raise DsocrError(f"{file} cannot be an adapter of kind {options.kind}; give a name that ends in {suffix}")
    if suffix == ".py" and not file.stem.isidentifier():
        raise DsocrError(f"{file} cannot be imported; give a name such as my_ocr.py")
    text = (STARTS / options.kind).with_suffix(f"{suffix}.txt" if suffix == ".py" else suffix).read_text("utf-8")
    begin, *sections = text.split(SECTION)
    named = ((name, body) for name, _, body in (section.partition("\n") for section in sections))
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(begin + "".join(body for name, body in named if name in METHODS[options.level or "L0"]))
    except FileExistsError:
        raise DsocrError(f"there is a file {file} already; give another name") from None
    except OSError as error:
        raise DsocrError(f"{file} cannot be written ({error.strerror}); give another name") from None
    yield f"written     {options.file}"
    where = " in the file's folder" if suffix == ".py" and file.parent != Path() else ""
    yield f"next        fill in the file, then run{where}:"
    yield f"            {in_shell(['dsocr', 'compare', f'--subject={subject.format(file=file, module=file.stem)}'])}"


def add_export(command: ArgumentParser) -> None:
    """Add the checkpoint, the folder, and the form."""
    command.add_argument("checkpoint", help="mini, a checkpoint's folder, or a hub name in the local cache")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a folder to write to, new or empty")
    what = "hf: with a text for every row; mlx: in mlx-vlm's names; gguf: by llama.cpp's converter"
    command.add_argument("--to", choices=FORMS, required=True, dest="form", help=what)
    sources = "for gguf: llama.cpp's folder, with convert_hf_to_gguf.py"
    command.add_argument("--llama-cpp", type=Path, metavar="FOLDER", help=sources)
    python = "for gguf: a Python that has the converter's packages (default: this one)"
    command.add_argument("--python", type=Path, metavar="PYTHON", help=python)


def export(options: Namespace) -> Iterator[str]:
    """Write a checkpoint in another form, and say how to load it."""
    from pytest_dsocr.adapters import export as exporting  # brings torch

    python = options.python or Path(sys.executable)
    for path in exporting.export(options.checkpoint, options.form, options.folder, options.llama_cpp, python):
        yield f"written     {path}"
    yield f"next        {NEXT[options.form].format(folder=options.folder)}"


CHECK = "check"


def add_dump(command: ArgumentParser) -> None:
    """Add the page or the folder, the prompt and the preset."""
    command.add_argument(
        "page", help=f"an image or a shipped page's name; or the word {CHECK}, and a folder with dumps behind it"
    )
    command.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help=f"what to {CHECK}: a dump, or several")
    add_model(command)
    add_reading(command)
    add(command, "--max-new-tokens", "stop after this many tokens", 1024, type=int, metavar="TOKENS")
    add(command, "--out", "folder for a folder of the case's name", Path("dsocr-dump"), type=Path)


def dump(options: Namespace) -> Iterator[str]:
    """Write a dump, or check one. The exit status is 1 if a file does not fit."""
    if options.page == CHECK and options.folder:
        yield from _checked(options)
        return
    from pytest_dsocr.adapters import dump as dumping  # brings torch
    from pytest_dsocr.pages.named import first_pages

    [page] = first_pages([options.page])
    yield f"written     {dumping.write(setup_of(options), case_of(options, page), options.out)}"
    yield f"next        {in_shell(['dsocr', 'dump', CHECK, str(options.out)])}"


def _checked(options: Namespace) -> Iterator[str]:
    from pytest_dsocr.adapters import dump_check

    arch, rows = architecture_of(options.checkpoint), [("file", "holds", "finding")]
    for folder in sorted(one for one in options.folder.glob("*") if one.is_dir()) or [options.folder]:
        found = dump_check.check(folder, arch)
        rows += [(folder.name, "", ""), *((f"  {name}", what, finding) for name, what, finding in found)]
    yield from aligned(rows, rows[0])
    options.status = int(any(finding and not finding.startswith(dump_check.FITS) for *_, finding in rows[1:]))
