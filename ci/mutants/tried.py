"""What was tried, on the disk, so that a run that was ended goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ci.mutants.mutations import Mutant
from ci.mutants.trial import Outcome, Target, digest


class Tried:
    """The outcomes of mutants.

    Args:
        path: a file of one line for each, the last of which counts.
        root: the repository.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path, self._root = path, root
        self._digests: dict[str, str] = {}
        self._known: dict[str, tuple[str, str, str]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            key, *rest = json.loads(line)
            self._known[key] = (rest[0], rest[1], rest[2])

    def outcome(self, mutant: Mutant) -> Outcome | None:
        """Give what became of a mutant of the file as it is; None where that was not tried."""
        said, code, _ = self._known.get(mutant.key, ("", "", ""))
        return Outcome(said) if said and code == self._of_file(mutant.file) else None

    def is_decided(self, mutant: Mutant, target: Target) -> bool:
        """Whether it need not be tried again: it was killed, or it survived the tests that there are."""
        outcome = self.outcome(mutant)
        return outcome is Outcome.KILLED or (outcome is not None and self._known[mutant.key][2] == self._of(target))

    def add(self, mutant: Mutant, target: Target, outcome: Outcome) -> None:
        """Keep what became of a mutant."""
        self._known[mutant.key] = (str(outcome), self._of_file(mutant.file), self._of(target))
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([mutant.key, *self._known[mutant.key]]) + "\n")

    def _of_file(self, file: str) -> str:
        if file not in self._digests:
            self._digests[file] = hashlib.sha256((self._root / file).read_bytes()).hexdigest()[:16]
        return self._digests[file]

    def _of(self, target: Target) -> str:
        if target.name not in self._digests:
            self._digests[target.name] = digest(self._root, target)
        return self._digests[target.name]
