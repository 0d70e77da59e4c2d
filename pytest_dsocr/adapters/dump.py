"""``dump:FOLDER`` and ``dump:COMMAND``: files that a program in any language wrote of its stages; see docs/adapters.md.

A folder has a subfolder for each case, named after the case; a command fills the folder that it is handed. Missing
files are not offered. Steps are compared up to the first token that is not the reference's. A command that takes
``{tokens}`` runs once more with the reference's. Any command runs again for more of its own steps, or an earlier page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.adapters import command, fields
from pytest_dsocr.adapters.dump_files import LENGTHS, LOGITS, TEXT, TOKENS, Dump, block_name, write_tensor
from pytest_dsocr.adapters.process import RunningCommand
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import recreate_dir, write_whole
from pytest_dsocr.base.words import count
from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.models import VISION_SEAMS
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.block_seams import in_stage_order
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.records.reference_result import pixels_sha256
from pytest_dsocr.subjects.engine import engine_subject
from pytest_dsocr.subjects.loading import DUMP
from pytest_dsocr.subjects.protocol import NotOfferedError, Offers, Setup

LEVEL = Level.STAGES
OWN_PROCESS = True
OUT = "out"
DumpKey = tuple[str, ...]
"""Hashes that identify inputs."""
MORE_TOKENS = 16


def offers(spec: str) -> Offers:
    """Return what a command offers; raise ``DsocrError`` where neither a folder nor a command that is here is named."""
    return Offers.of(_options(spec))


def subject(spec: str, setup: Setup) -> DumpSubject:
    """Return the subject that ``spec`` names."""
    options = _options(spec)
    return CommandDumps(setup, options) if options else DumpSubject(setup, Path(spec.removeprefix(DUMP)))


def _options(spec: str) -> command.CommandOptions | None:
    """Read those of a command; None of a folder."""
    if f"{{{OUT}}}" in spec or spec.endswith(fields.TOML):
        return command.options_of(spec, DUMP, ("page", OUT), (OUT, TOKENS))
    folder = spec.removeprefix(DUMP)
    if not Path(folder).is_dir():
        raise DsocrError(
            f"there is no folder {folder!r}; give one with dumps, or a command with {{page}} and {{{OUT}}}"
        )
    return None


@dataclass(frozen=True)
class Held:
    """Length of a cache whose contents were not written."""

    length: int

    def __getattr__(self, name: str) -> Any:
        """Raise, because the contents are unknown."""
        raise NotOfferedError("not offered: what the cache holds")


@dataclass(eq=False)
class Fed:
    """State of decoding: the tokens so far, the dumps, and a way to get dumps of more tokens."""

    dumps: Sequence[Dump]
    tokens: list[int]
    further: Callable[[Sequence[int]], Sequence[Dump]]

    @property
    def logits(self) -> Tensor:
        """Logits of the next token ``[V]``."""
        return self._row(LOGITS)

    @property
    def chosen(self) -> Sequence[int]:
        """The tokens that the program chose freely."""
        return self.dumps[0].tokens

    @property
    def cache(self) -> Held:
        """Length of the cache."""
        return Held(int(self._row(LENGTHS)))

    def _row(self, name: str) -> Tensor:
        while True:
            for dump in self.dumps:
                if (found := dump.row(name, self.tokens)) is not None:
                    return found
            self.dumps = self.further(self.tokens)


class DumpSubject:
    """L2: the dumps in a folder, each in one that is called as its case is."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self._folder, self._checkpoint = folder, resolve(setup.checkpoint)
        self._made: dict[DumpKey, list[tuple[Path, Sequence[int]]]] = {}
        self._cases: dict[DumpKey, Case] = {}
        self._read = lru_cache(2)(Dump.read)
        self.not_offered = frozenset[str]()
        self.block_outputs: dict[str, Tensor] = {}

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return the inputs that were written, and the contract's instead of those that were not."""
        case = self._case(page, prompt, preset)
        made = self._runs(case)
        dump, own = self._read(made[0][0]), case.family.prepare(page, prompt, preset, self._checkpoint.tokenizer)
        self.not_offered = frozenset({"dtypes", *TENSORS, FUSION}.difference(dump.tensors))
        inputs = {**own.tensors, **dump.inputs(own)}
        key = _key(inputs)
        self._made[key], self._cases[key] = made, case
        return inputs

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the seams of vision that were written; an empty one means that the page is not encoded."""
        found = self._dumps(_key(inputs))[0].tensors
        named = {block_name(name): value for name, value in found.items() if block_name(name) != name}
        self.block_outputs = in_stage_order({name: value[(None,) * (value.ndim == 2)] for name, value in named.items()})
        return {name: value for name, value in found.items() if name in VISION_SEAMS and value.numel()}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Fed:
        """Return the state after the prompt, with the features that were written."""
        dumps = self._dumps(key := _key(inputs))
        own = dumps[0].tensors.get(FUSION)
        if own is not None and own.numel() and (vision_fusion is None or not vision_fusion.equal(own)):
            raise NotOfferedError("not offered: what follows from other features than the program's own")
        return Fed(dumps, [], partial(self._further, key))

    def step(self, state: Fed, token: int) -> Tensor:
        """Return the logits after one more token, if a dump has them."""
        state.tokens.append(token)
        return state.logits

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Return the text that was written."""
        return self._text(self._runs(self._case(page, prompt, preset, max_new_tokens))[0][0])

    def _case(self, page: Path, prompt: str, preset: Preset, max_new_tokens: int = 1) -> Case:
        return Case(page, prompt, preset, max_new_tokens, self._checkpoint.architecture.family)

    def _runs(self, case: Case) -> list[tuple[Path, Sequence[int]]]:
        """Return the folders of a case, each with the reference's tokens that it followed, if it did."""
        found = self._folder / case.id
        if not os.path.lexists(found):
            raise NotOfferedError(f"not offered: cases that {self._folder} has no folder of")
        return [(found, ())]

    def _dumps(self, key: DumpKey) -> list[Dump]:
        if (made := self._made.get(key)) is None:
            raise NotOfferedError("not offered: what follows from other inputs than the program's own")
        dumps = ((self._read(folder), along) for folder, along in made)
        return [replace(dump, tokens=along or dump.tokens) for dump, along in dumps]

    def _further(self, key: DumpKey, tokens: Sequence[int]) -> Sequence[Dump]:
        """Raise: only a command can write dumps that continue after these tokens."""
        raise NotOfferedError("not offered: what was not written behind these tokens")

    def _text(self, folder: Path) -> str:
        if (text := self._read(folder).text) is None:
            raise NotOfferedError(f"not offered: a text; no {TEXT} was written")
        return text


def _key(inputs: Mapping[str, Tensor]) -> DumpKey:
    return tuple(pixels_sha256(inputs[name]) for name in TENSORS)


class CommandDumps(DumpSubject):
    """L2: a command that fills a folder for each page; the last page's folder is kept.

    It runs for one token if nobody has announced how many the page needs.
    """

    def __init__(self, setup: Setup, options: command.CommandOptions) -> None:
        super().__init__(setup, Path())
        self._options, self._values = options, asdict(setup)
        self.presets, self.prompts = options.presets, options.prompts
        self._next: tuple[Case, list[int]] | None = None
        self._scratch: TemporaryDirectory[str] | None = None

    def announce(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int, token_ids: list[int]) -> None:
        """Take note of how far the next page will be read, and along which tokens."""
        self._next = self._case(page, prompt, preset, max_new_tokens), token_ids

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Return the text that the announced page's run wrote, once; of another page, or again, that of a new run."""
        case = self._case(page, prompt, preset, max_new_tokens)
        if self._made and self._next and self._next[0] == case:
            self._next = None
            return self._text(next(iter(self._made.values()))[0][0])
        with TemporaryDirectory() as scratch:
            return self._text(self._run(case, Path(scratch)))

    def close(self) -> None:
        """Delete what was written."""
        self._made.clear()
        if self._scratch:
            self._scratch.cleanup()

    def _runs(self, case: Case) -> list[tuple[Path, Sequence[int]]]:
        self.close()
        self._scratch = TemporaryDirectory()
        wanted, along = self._next or (case, [])
        if replace(case, max_new_tokens=wanted.max_new_tokens) != wanted or case.max_new_tokens > wanted.max_new_tokens:
            wanted, along = case, []
        made: list[tuple[Path, Sequence[int]]] = [(self._run(wanted, Path(self._scratch.name)), ())]
        takes_tokens = any(f"{{{TOKENS}}}" in word for word in self._options.words)
        if along and takes_tokens and self._read(made[0][0]).tokens != along:
            made.append((self._run(wanted, Path(self._scratch.name, "along"), along), along))
        return made

    def _dumps(self, key: DumpKey) -> list[Dump]:
        """Run again for a page if another was read after it."""
        if key not in self._made and key in self._cases:
            self._made[key] = self._runs(self._cases[key])
        return super()._dumps(key)

    def _further(self, key: DumpKey, tokens: Sequence[int]) -> Sequence[Dump]:
        """Run again for more tokens, if its own equal these and it has not reached its end.

        Raises:
            SubjectFaultError: if it then chooses other tokens.
        """
        own, eos_id = self._dumps(key)[0].tokens, self._checkpoint.tokenizer.special.eos
        if tokens and [*own] == [*tokens] and own[-1] != eos_id:
            longer = replace(self._cases[key], max_new_tokens=2 * len(tokens) + MORE_TOKENS)
            self._made[key] = self._runs(longer)
            found = self._dumps(key)
            if [*found[0].tokens[: len(tokens)]] != [*tokens]:
                others = f"others than its first {count(len(tokens), 'token')} where it was asked for more"
                raise SubjectFaultError("decode", f"the command chose {others}; see what its limit changes")
            if len(found[0].tokens) > len(tokens):
                return found
        return super()._further(key, tokens)

    def _run(self, case: Case, folder: Path, along: Sequence[int] = ()) -> Path:
        """Have the command fill a folder; without ``along`` it chooses its own tokens."""
        (out := folder / OUT).mkdir(parents=True)
        tokens = write_whole(folder / TOKENS, "".join(f"{token}\n" for token in along))
        of_page = fields.of_page(case.page, case.prompt, case.preset, case.max_new_tokens)
        values = {**self._values, **of_page, OUT: str(out), TOKENS: str(tokens)}
        command.run(self._options, values, RunningCommand.output)
        return out


def write(setup: Setup, case: Case, folder: Path) -> Path:
    """Write what the engine does with a case into a folder of the case's name, which is made; return that."""
    subject = engine_subject(setup)
    inputs = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    said = subject.engine.run_prepared(Inputs(**inputs), max_new_tokens=case.max_new_tokens)
    seams = subject.vision(inputs)
    state = subject.prefill(inputs, seams.get(FUSION))
    rows, lengths = [state.logits[0].clone()], [state.cache.length]
    for token in said.token_ids[:-1]:
        rows.append(subject.step(state, token).clone())
        lengths.append(state.cache.length)
    counts = {TOKENS: torch.tensor(said.token_ids), LENGTHS: torch.tensor(lengths)}
    out = recreate_dir(folder / case.id)
    for name, tensor in {**inputs, **seams, PREFILL: rows[0], LOGITS: torch.stack(rows), **counts}.items():
        write_tensor(out, name, tensor)
    write_whole(out / TEXT, said.text)
    return out
