"""Create the environment of the vendor's code with uv, and check it.

The caller's versions of shared packages are pinned, and its torch can be reused. The packages are imported as a check.
An interrupted setup is never mistaken for a complete one.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.reference.environment import MARK, STAMP, EnvironmentPlan, Stamp, interpreter, read_stamp

TAKEN_UP = re.compile(r"\s*(?:Downloading|Building|\+) (\w[\w.-]*)|Prepared")
TAIL_LINES = 12
ADVICE = (
    ("No space left", "make room, or name another folder with --env"),
    ("no version of torch==", "the index lacks this version of torch: pass --reuse-torch"),
    ("not found", "name a package index with PIP_INDEX_URL, or a folder of wheels with PIP_FIND_LINKS"),
    ("Failed to fetch", "name a package index with PIP_INDEX_URL, or a folder of wheels with PIP_FIND_LINKS"),
    ("incompatible", "the packages of --with need other versions of the packages below"),
)
OF_PIP = {"PIP_INDEX_URL": "--default-index", "PIP_EXTRA_INDEX_URL": "--index", "PIP_FIND_LINKS": "--find-links"}
"""Variables that configure pip, each with the option of uv that means the same."""
AS_PIP = ("--index-strategy", "unsafe-best-match", "--compile-bytecode")
"""Options with which uv chooses among indexes as pip does, and compiles what workers import but do not write."""
PROOF = """\
import importlib.metadata, json, sys
import tokenizers, torch, transformers
from transformers.models.llama.modeling_llama import LlamaFlashAttention2
print(json.dumps({
    "versions": {name: importlib.metadata.version(name) for name in sys.argv[1:]},
    "files": {module.__name__: module.__file__ for module in (tokenizers, torch, transformers)},
}))
"""


def set_up(plan: EnvironmentPlan, folder: Path) -> Iterator[str]:
    """Create the environment in ``folder`` unless it is complete; yield each step and package.

    Remains of an interrupted setup, or of a setup by another plan, are deleted first.

    Raises:
        DsocrError: if setup did not create the folder, a package cannot be installed, or another package is imported
            than was installed.
    """
    _claim(folder)
    with (folder / MARK).open("a") as lock:
        yield from _wait_for(lock)
        if not is_made(plan, folder):
            _clear(folder)
            yield from _fill(plan, folder, lock)
            versions = prove(plan, folder)
            write_stamp(Stamp(plan, versions, datetime.now(UTC).isoformat(timespec="seconds")), folder)
        (folder / STAMP).touch()  # the newest stamp is found first


def is_made(plan: EnvironmentPlan, folder: Path) -> bool:
    """Return whether the environment in ``folder`` is complete and was made by this plan."""
    stamp = read_stamp(folder)
    return stamp is not None and stamp.plan == plan


def prove(plan: EnvironmentPlan, folder: Path) -> dict[str, str]:
    """Import the installed packages with the environment's interpreter, and return their versions.

    Raises:
        DsocrError: if a package cannot be imported, or is not the one that the plan names.
    """
    wanted = {name: version for name, _, version in (pin.partition("==") for pin in plan.pins)}
    lines = list(_lines("the new environment", [str(interpreter(folder)), "-I", "-c", PROOF, *wanted]))
    said = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    versions: dict[str, str] = said["versions"]
    wrong = [
        f"{name} {versions[name]} instead of {version}"
        for name, version in wanted.items()
        if version and versions[name].split("+")[0] != version
    ]
    for name, file in said["files"].items():
        homes = plan.torch_from if name == "torch" and plan.torch_from else (str(folder),)
        if not any(Path(file).resolve().is_relative_to(os.path.realpath(home)) for home in homes):
            wrong.append(f"{name} from {file}")
    if wrong:
        raise DsocrError(f"the new environment has {', '.join(wrong)}; remove the --with that replaces packages")
    return versions


def write_stamp(stamp: Stamp, folder: Path) -> None:
    """Mark the environment in ``folder`` as complete."""
    write_whole(folder / STAMP, f"{json.dumps(asdict(stamp), indent=1)}\n".encode())


def _claim(folder: Path) -> None:
    foreign = any(folder.iterdir()) if folder.is_dir() else folder.exists()
    if foreign and not (folder / MARK).exists():
        raise DsocrError(f"{folder} was not created by setup and is not changed; name a new or empty folder with --env")
    folder.mkdir(parents=True, exist_ok=True)


def _wait_for(lock: TextIO) -> Iterator[str]:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield "waiting for another setup of the same folder"
        fcntl.flock(lock, fcntl.LOCK_EX)


def _clear(folder: Path) -> None:
    (folder / STAMP).unlink(missing_ok=True)  # first: a stamp must not outlive its environment
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()


def _fill(plan: EnvironmentPlan, folder: Path, lock: TextIO) -> Iterator[str]:
    yield "a virtual environment"
    list(_uv(["venv", "--allow-existing", "--no-project", "--python", sys.executable, str(folder)], lock))
    command = ["pip", "install", "--python", str(interpreter(folder)), *AS_PIP, *_sources(), *plan.pins, *plan.extra]
    if plan.torch_from:
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        (site / "dsocr-torch.pth").write_text("\n".join(plan.torch_from) + "\n", encoding="utf-8")
        without_torch = folder / "without-torch.txt"  # whatever package requires it
        without_torch.write_text("torch; python_version < '3'\n", encoding="utf-8")
        command += ["--override", str(without_torch)]
    for line in _uv(command, lock):
        if found := TAKEN_UP.match(line):
            yield found[1] or found[0].lower()


def _sources() -> Iterator[str]:
    """Yield options for the sources of packages that the user has named to pip."""
    for name, option in OF_PIP.items():
        for source in os.environ.get(name, "").split():
            yield from (option, source)
    if os.environ.get("PIP_NO_INDEX"):
        yield "--no-index"


def _uv(arguments: Sequence[str], lock: TextIO) -> Iterator[str]:
    return _lines("uv", [sys.executable, "-I", "-m", "uv", *arguments], lock)


def _lines(what: str, command: Sequence[str], *locks: TextIO) -> Iterator[str]:
    """Yield the lines of a command's output. The command inherits the locks, as it may outlive a killed setup."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[lock.fileno() for lock in locks],
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                yield line
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise DsocrError(_failure(what, list(tail)))


def _failure(what: str, tail: Sequence[str]) -> str:
    text = "\n".join(tail)
    advice = [advice for sign, advice in ADVICE if sign in text][:1]
    return "; ".join([f"{what} failed", *advice, "its last output:"]) + "".join(f"\n  {line}" for line in tail)
