"""Subjects by name: the engine, ``package.module:factory``, or ``kind:ARGUMENT``, where an adapter serves the kind.

A factory is imported as ``python -m`` would import it: the current folder comes first. A factory is a class or a
function. It receives one :class:`~pytest_dsocr.subjects.protocol.Setup`, or nothing if it takes no argument.

Another package adds an adapter by the entry-point group ``dsocr.subjects``: a kind, and the module of its
:class:`Adapter`.

Importing this module does not import torch.
"""

import importlib
import inspect
import sys
from collections.abc import Callable
from functools import reduce
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, cast, get_type_hints

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.records.config import START_LIMIT_S, Level
from pytest_dsocr.subjects.calls import LOAD, at_stage, brief, guarded, refusal
from pytest_dsocr.subjects.protocol import Offers, Setup, TextSubject, level_of, level_of_parts, parts_of

ENGINE = "engine"
FAST = f"{ENGINE}:fast"
ENGINES = (ENGINE, FAST)
VENDOR, FORK, CLI, DUMP = "vendor:", "fork:", "cli:", "dump:"
HTTP, HTTPS, PROCESSOR = "http:", "https:", "processor:"
ADAPTERS = {
    **{VENDOR: "vendor", FORK: "vendor", CLI: "command", DUMP: "dump"},
    **{HTTP: "server", HTTPS: "server", PROCESSOR: "processor"},
}
"""The project's own kinds, each with its module in ``pytest_dsocr.adapters``, a room above this one."""
BY_ENGINE = "the subject's process loads a model of the built-in engine"
"""Note on an isolated subject that lets the engine do some of its work."""
GROUP = "dsocr.subjects"
"""Entry points of kinds that other packages add."""
VALID = (
    f"give {ENGINE}, {FAST}, {VENDOR}FOLDER, {FORK}FOLDER, package.module:factory, {PROCESSOR}package.module:Class, "
    f"{CLI}COMMAND, {DUMP}FOLDER, {DUMP}COMMAND, or {HTTP}//HOST:PORT/v1?model=NAME"
)
"""Names of subjects that need no other package."""


class Adapter(Protocol):
    """The contents of an adapter's module."""

    LEVEL: Level
    """Level of its subjects."""
    OWN_PROCESS: bool
    """Whether its subjects run in processes of their own, and need no other for ``--dsocr-isolate``."""

    def offers(self, spec: str) -> Offers:
        """Return the presets and prompts offered, without asking the subject.

        ``spec`` is the whole name, such as ``cli:COMMAND``. Raise ``DsocrError`` if it names no subject.
        """

    def subject(self, spec: str, setup: Setup) -> TextSubject:
        """Return the subject; raise ``DsocrError`` if it is not available."""


def adapter_of(spec: str) -> Adapter | None:
    """Return the adapter of a subject's kind, or None if the name has no kind.

    Raises:
        DsocrError: if another package's adapter cannot be imported, or lacks a part.
    """
    kind, colon, _ = spec.partition(":")
    if module := ADAPTERS.get(kind + colon):
        return cast("Adapter", importlib.import_module(f"pytest_dsocr.adapters.{module}"))
    found = [*entry_points(group=GROUP, name=kind)] if colon else []
    return _added(kind, found[0]) if found else None


def _added(kind: str, point: EntryPoint) -> Adapter:
    name = f"{point.value}, the adapter of {kind}:,"
    failed = refusal(f"{name} cannot be imported", "fix or uninstall its package")
    with guarded(LOAD, f"adapter {kind}", failed):
        adapter: Any = point.load()
    parts = [*Adapter.__annotations__, "offers", "subject"]
    if missing := [part for part in parts if not hasattr(adapter, part)]:
        raise DsocrError(f"{name} lacks {', '.join(missing)}; see {__name__}.Adapter")
    return cast("Adapter", adapter)


def valid_names() -> str:
    """Return advice that lists every known name and kind."""
    added = sorted({point.name for point in entry_points(group=GROUP)})
    return f"{VALID}; or, of installed packages, {', '.join(f'{kind}:ARGUMENT' for kind in added)}" if added else VALID


def load_subject(spec: str, setup: Setup) -> TextSubject:
    """Load the subject of a name.

    Raises:
        DsocrError: if it cannot be loaded, or is not a subject; the message says why.
    """
    if spec in ENGINES:
        from pytest_dsocr.subjects.engine import engine_subject

        return engine_subject(setup, "readable" if spec == ENGINE else "fast")
    if adapter := adapter_of(spec):
        return adapter.subject(spec, setup)
    return _made(spec, named_factory(spec), setup)


def open_subject(
    spec: str, setup: Setup, isolated_s: float | None, start_limit_s: float = START_LIMIT_S
) -> TextSubject:
    """Load a subject in this process, or in a process of its own.

    Args:
        spec: as for :func:`load_subject`.
        setup: the run's.
        isolated_s: seconds for one call in a process of its own; None loads it in this process.
        start_limit_s: seconds for starting that process and loading the subject there.

    Raises:
        DsocrError: as :func:`load_subject`.
    """
    adapter = adapter_of(spec)
    if isolated_s is None or (adapter and adapter.OWN_PROCESS):
        return load_subject(spec, setup)
    from pytest_dsocr.subjects.isolation.subject import IsolatedSubject

    subject: Any = IsolatedSubject(spec, setup, isolated_s, start_limit_s)
    return cast("TextSubject", subject)


def close_subject(subject: TextSubject) -> None:
    """Close a subject that has ``close``; raise ``SubjectFaultError`` if that fails."""
    with at_stage("close", "close"):
        if callable(close := getattr(subject, "close", None)):
            close()


def level_before_loading(spec: str, *, may_import: bool = True) -> Level | None:
    """Return a subject's level without loading the subject, or None if the level is not known yet.

    The methods of a class show its level. A function shows it by the class in its return annotation. A protocol
    there shows nothing, because the subject may offer more.

    Raises:
        DsocrError: if a factory cannot be imported.
    """
    if spec in ENGINES:
        return Level.MODULES
    if adapter := adapter_of(spec):
        return adapter.LEVEL
    if not may_import:
        return None
    factory = named_factory(spec)
    made = factory if isinstance(factory, type) else _annotated(factory)
    if not isinstance(made, type) or getattr(made, "_is_protocol", False):
        return None
    try:
        return level_of_parts(parts) if (parts := parts_of(made)) else level_of(made)
    except DsocrError:  # methods may be given to an object as it is made
        return None


def offers_before_loading(spec: str, *, may_import: bool = True) -> Offers:
    """Return the presets and prompts that a subject offers, as far as known without loading the subject.

    Raises:
        DsocrError: if a factory cannot be imported, an adapter refuses the name, or a preset or prompt is unknown.
    """
    if spec in ENGINES:
        return Offers()
    if adapter := adapter_of(spec):
        return adapter.offers(spec)
    factory = named_factory(spec) if may_import else None
    return Offers.of(factory if isinstance(factory, type) else None)


def named_factory(spec: str) -> Callable[..., Any]:
    """Import the class or function ``package.module:name``; raise ``DsocrError`` if there is none."""
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise DsocrError(f"{spec!r} names no subject; {valid_names()}")
    module = _module(spec, module_name)
    try:
        factory: object = reduce(getattr, path.split("."), module)
    except AttributeError:
        named = {name: value for name, value in vars(module).items() if callable(value)}
        found = ", ".join(name for name in named if getattr(named[name], "__module__", None) == module_name)
        raise DsocrError(
            f"{module_name} ({module.__file__}) has no {path}; it has {found or 'no class or function of its own'}"
        ) from None
    if not callable(factory):
        raise DsocrError(
            f"{spec} cannot be called (it is of type {type(factory).__name__}); give a class or a function"
        )
    return factory


def _module(spec: str, name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)

    def raised(error: BaseException) -> DsocrError:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            absent = f"there is no module {error.name}, neither in {here} nor installed"
            return DsocrError(f"{spec!r}: {absent}; {valid_names()}")
        return DsocrError(f"{name} cannot be imported ({brief(error)}); fix it, or name another subject")

    with guarded(LOAD, f"module {name}", raised):
        return importlib.import_module(name)


def _made(spec: str, factory: Callable[..., Any], setup: Setup) -> TextSubject:
    arguments = (setup,) if _takes_setup(spec, factory) else ()
    raised = refusal(f"{spec} could not make its subject", "see the error it came from")
    with guarded(LOAD, f"factory {spec}", raised):
        subject: TextSubject = factory(*arguments)
        if parts_of(subject):
            from pytest_dsocr.subjects.parts import completed

            return completed(subject, setup)
        level_of(subject)
    return subject


def _takes_setup(spec: str, factory: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(factory)
    except ValueError:  # for what is not written in Python
        return True
    if not signature.parameters:
        return False
    try:
        signature.bind(object())
    except TypeError as error:
        raise DsocrError(
            f"{spec}{signature} cannot be called with one Setup ({error}); let it take that alone"
        ) from None
    return True


def _annotated(factory: Callable[..., Any]) -> object:
    try:
        return get_type_hints(factory).get("return")
    except (NameError, TypeError, AttributeError):  # imported for type checkers alone, or not a function
        return None
