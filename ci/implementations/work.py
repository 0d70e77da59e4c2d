"""One row run: an environment of its own, what the row needs in it, and the default suites."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from ci.implementations.rows import LLAMA, PORT, SERVER_OPTIONS, TORCH, Row
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.printable import in_shell

CHECKOUT = Path(__file__).parents[2]
CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_CURL=OFF"]
UP_S = 60.0


class Work:
    """A row's folder.

    Args:
        row: what is run.
        folder: where its environment, sources and results lie; kept, so that a second run is quick.
    """

    def __init__(self, row: Row, folder: Path) -> None:
        self.row, self.folder = row, folder.absolute()
        self.python = self.folder / "env" / "bin" / "python"

    def run(self, options: Sequence[str]) -> int:
        """Install what is missing, and run the suites; give their exit status."""
        self._install()
        names = self._build() if self.row.program else {}
        subject = self.row.subject.format(**names) if names else self.row.subject
        path = os.pathsep.join(map(str, (CHECKOUT, self.folder / "unpacked")))
        main = "import sys; from pytest_dsocr.cli.main import main; sys.exit(main())"
        command: list[str | Path] = [
            self.python,
            "-c",
            main,
            "compare",
            f"--subject={subject}",
            f"--out={self.folder}/out",
            *options,
        ]
        with self._serving(names) if self.row.serves else nullcontext():
            return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode

    def _install(self) -> None:
        if not self.python.is_file():
            told([sys.executable, "-m", "venv", self.folder / "env"])
        done = self.folder / "installed"
        if done.is_file():
            return
        told([self.python, "-m", "pip", "install", "-q", TORCH, "-e", CHECKOUT, *self.row.packages])
        if self.row.alone:
            told([self.python, "-m", "pip", "install", "-q", "--no-deps", *self.row.alone])
        if self.row.wheel:
            [wheel] = self._downloaded("wheels", [self.row.wheel], "*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.folder / "unpacked", self.row.files)
        done.write_text("")

    def _build(self) -> dict[str, str]:
        """Build llama.cpp's program and export the checkpoint; give the names that the subject is filled with."""
        sources = self._sources()
        built, gguf = self.folder / "build", self.folder / "gguf"
        if not (built / "bin" / self.row.program).is_file():
            told([self.python, "-m", "pip", "install", "-q", "cmake", "ninja"])
            cmake = self.python.parent / "cmake"
            told(
                [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={cmake.parent}/ninja", "-S", sources, "-B", built, *CMAKE]
            )
            told([cmake, "--build", built, "-j", str(os.cpu_count()), "--target", self.row.program])
        if not (gguf / "model.gguf").is_file():
            main = "import sys; from pytest_dsocr.cli.main import main; sys.exit(main())"
            told([self.python, "-c", main, "export", "mini", "--to=gguf", f"--llama-cpp={sources}", gguf])
        return {"bin": str(built / "bin"), "gguf": str(gguf)}

    def _sources(self) -> Path:
        found = [*self.folder.glob("llama_cpp_python-*/vendor/llama.cpp")]
        if not found:
            [archive] = self._downloaded("sources", ["--no-binary", ":all:", LLAMA], "*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(self.folder, filter="data")
            found = [*self.folder.glob("llama_cpp_python-*/vendor/llama.cpp")]
        return found[0]

    def _downloaded(self, name: str, what: Sequence[str], pattern: str) -> list[Path]:
        folder = self.folder / name
        told([self.python, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *what])
        return [*folder.glob(pattern)]

    @contextmanager
    def _serving(self, names: dict[str, str]) -> Iterator[None]:
        models = ["-m", f"{names['gguf']}/model.gguf", "--mmproj", f"{names['gguf']}/mmproj.gguf"]
        with (self.folder / "server.log").open("w") as log:
            command = [f"{names['bin']}/{self.row.program}", *models, *SERVER_OPTIONS]
            with subprocess.Popen(command, stdout=log, stderr=log) as server:
                try:
                    _wait(server)
                    yield
                finally:
                    server.kill()


def told(command: Sequence[str | Path]) -> None:
    """Run a command, and say which; raise ``DsocrError`` where it fails."""
    words = [str(word) for word in command]
    sys.stdout.write(f"running     {in_shell(words)}\n")
    sys.stdout.flush()
    if status := subprocess.run(words).returncode:
        raise DsocrError(f"it ended with status {status}; see what it said above")


def _wait(server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + UP_S
    while server.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"http://localhost:{PORT}/health"):
            return
        time.sleep(0.5)
    raise DsocrError("the server did not come up; see its server.log")
