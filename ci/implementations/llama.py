"""llama.cpp: its sources from a package, its programs built, a checkpoint exported for it, its server up."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ci.implementations.rows import LLAMA, PORT, SERVER_OPTIONS
from ci.implementations.told import DSOCR, downloaded, told
from pytest_dsocr.foundation.errors import DsocrError

CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_CURL=OFF"]
JOBS = "CMAKE_BUILD_PARALLEL_LEVEL"
"""cmake's own variable: how many compilers run at once; all cores' worth without it."""
UP_S = 60.0


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp in a folder."""

    folder: Path
    python: Path
    """Has what the converter needs."""

    def built(self, program: str) -> dict[str, str]:
        """Build a program and export the checkpoint; give the names that a subject is filled with."""
        sources = self._sources()
        build, gguf = self.folder / "build", self.folder / "gguf"
        told([self.python, "-m", "pip", "install", "-q", "cmake", "ninja"])
        cmake, ninja = (self.python.parent / name for name in ("cmake", "ninja"))
        told([cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", sources, "-B", build, *CMAKE])
        jobs = os.environ.get(JOBS, str(os.cpu_count()))
        told([cmake, "--build", build, "-j", jobs, "--target", program])
        if not (gguf / "model.gguf").is_file():
            told([self.python, "-c", DSOCR, "export", "mini", "--to=gguf", f"--llama-cpp={sources}", gguf])
        return {"bin": str(build / "bin"), "gguf": str(gguf)}

    @contextmanager
    def serving(self, names: dict[str, str], program: str) -> Iterator[None]:
        """Have a built server up."""
        models = ["-m", f"{names['gguf']}/model.gguf", "--mmproj", f"{names['gguf']}/mmproj.gguf"]
        with (self.folder / "server.log").open("w") as log:
            command = [f"{names['bin']}/{program}", *models, *SERVER_OPTIONS]
            with subprocess.Popen(command, stdout=log, stderr=log) as server:
                try:
                    _wait(server)
                    yield
                finally:
                    server.kill()

    def _sources(self) -> Path:
        where = "llama_cpp_python-*/vendor/llama.cpp"
        if not (found := [*self.folder.glob(where)]):
            what = ["--no-binary", ":all:", LLAMA]
            [archive] = downloaded(self.python, self.folder / "sources", what, "*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(self.folder, filter="data")
            found = [*self.folder.glob(where)]
        return found[0]


def _wait(server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + UP_S
    while server.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"http://localhost:{PORT}/health"):
            return
        time.sleep(0.5)
    raise DsocrError("the server did not come up; see its server.log")
