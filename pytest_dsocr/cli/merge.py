"""``dsocr merge``: results of shards become one ``dsocr.json`` and page. The status is that of ``dsocr compare``."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.foundation.words import count, in_shell
from pytest_dsocr.report.ci import append_summary
from pytest_dsocr.report.exit_status import EXIT_STATUS, Ending
from pytest_dsocr.report.file import RunIdentity, mark_running, write_json
from pytest_dsocr.report.html import write_index
from pytest_dsocr.report.markdown import write_summary
from pytest_dsocr.report.merge import Part, merged, read_parts
from pytest_dsocr.report.side_files import made_anew

PICTURES = Format(bytes, "run that part again")


def run(options: Namespace) -> Iterator[str]:
    """Merge, write, and yield what was written and the verdict.

    Raises:
        DsocrError: where the results are not of one run, one did not finish, or nothing can be written.
    """
    if options.out.resolve() in {folder.resolve() for folder in options.folders}:
        raise DsocrError(f"{options.out} is one of the folders to merge; give another --out")
    parts = read_parts(options.folders, unfinished=options.unfinished)
    words = [*map(str, options.folders), f"--out={options.out}", *(["--unfinished"] if options.unfinished else [])]
    command = in_shell(["dsocr", "merge", *words])
    result = merged(parts, command)
    mark_running(options.out, RunIdentity.now(command))
    result["cases"] = [*_with_pictures(result["cases"], parts, options.out)]
    written = [write_index(result, options.out), write_summary(result, options.out), write_json(options.out, result)]
    if problem := append_summary(result):
        yield f"noticed     {problem}"
    options.status = EXIT_STATUS[Ending(result["ended_as"])]
    yield f"merged      {count(len(parts), 'run')}, {count(len(result['cases']), 'case')}"
    yield f"written     {', '.join(map(str, written[::-1]))}"
    yield f"verdict     {result['verdict']}"


def _with_pictures(cases: Sequence[dict[str, Any]], parts: Sequence[Part], out: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases, their pictures and both sides' files copied; a case whose picture is lost has none."""
    for case in cases:
        name = case["picture"]
        found = [part.folder / name for part in parts if name and (part.folder / name).is_file()]
        if found:
            write_whole(out / name, PICTURES.read_bytes(found[0]), shared=True)
            if (sides := found[0].with_suffix("")).is_dir():
                _copy_folder(sides, made_anew((out / name).with_suffix("")))
        yield {**case, "picture": name if found else None}


def _copy_folder(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    except OSError as error:
        raise DsocrError(f"{target} cannot be written ({error.strerror}); give another --out") from error
