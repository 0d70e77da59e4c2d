"""Put a mutant into a running Python: into functions that are there, or into a module when it is imported."""

from __future__ import annotations

import gc
import importlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from ci.mutants.mutations import Mutant, mutated


class Functions:
    """All functions that come from some files, paths from ``root``."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self._root = root
        self._all: defaultdict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        paths = {str(root / file) for file in files}
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename in paths:
                self._all[_place(one.__code__)].append(one)

    def find(self, mutant: Mutant) -> tuple[Sequence[FunctionType], CodeType | None]:
        """Give the functions that hold a mutant, and the code that they get; None where that cannot be put there."""
        path = str(self._root / mutant.file)
        for code in (
            _codes(compile(mutated(self._root, mutant), path, "exec", dont_inherit=True)) if mutant.within else ()
        ):
            is_it = code.co_qualname == mutant.within and any(line == mutant.lines[0] for *_, line in code.co_lines())
            own = self._all.get(_place(code), ())
            if is_it and own and all(_kind(one.__code__) == _kind(code) for one in own):
                return own, code
        return (), None


def import_mutated(root: Path, mutant: Mutant) -> None:
    """Import the module of a mutant as the mutant has it, before pytest's own importer, which would read the disk.

    Raises:
        RuntimeError: where it is imported already.
    """
    name = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already")
    sys.meta_path.insert(0, _Finder(name, str(root / mutant.file), _Loader(root, mutant, name)))
    importlib.import_module(name)


class _Loader(SourceFileLoader):
    def __init__(self, root: Path, mutant: Mutant, name: str) -> None:
        super().__init__(name, str(root / mutant.file))
        self._root, self._mutant = root, mutant

    def get_code(self, fullname: str) -> CodeType:
        """Give the changed code, and never what is cached of the unchanged."""
        code: CodeType = compile(mutated(self._root, self._mutant), self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, name: str, path: str, loader: _Loader) -> None:
        self._name, self._path, self._loader = name, path, loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find that one module."""
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._path, loader=self._loader)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _kind(code: CodeType) -> tuple[object, ...]:
    """What must be equal in a function's old and new code: what it encloses, and whether it is a generator."""
    return code.co_freevars, code.co_flags


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
