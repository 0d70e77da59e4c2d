"""From what a user names to a subject: an engine, ``package.module:factory``, or by an adapter.

A factory is imported as ``python -m`` would import it: the current folder comes first. It is a class or a function, and
is called with one :class:`~pytest_dsocr.subjects.protocol.Setup`, or with nothing where it takes no argument.

Nothing here imports torch before a subject is loaded.
"""

import importlib
import inspect
import sys
from collections.abc import Callable
from functools import reduce
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
"""By the beginning of a subject's name, the module in ``pytest_dsocr.adapters``, a room above this one."""
VALID = (
    f"give {ENGINE}, {FAST}, {VENDOR}FOLDER, {FORK}FOLDER, package.module:factory, {PROCESSOR}package.module:Class, "
    f"{CLI}COMMAND, {DUMP}FOLDER, {DUMP}COMMAND, or {HTTP}//HOST:PORT/v1?model=NAME"
)


class Adapter(Protocol):
    """What an adapter's module has."""

    LEVEL: Level
    """What its subjects offer."""
    OWN_PROCESS: bool
    """Whether they are processes of their own already, which need no other around them."""

    def offers(self, spec: str) -> Offers:
        """Return the presets and prompts offered; asks nobody. Raise ``DsocrError`` where no subject is named."""

    def subject(self, spec: str, setup: Setup) -> TextSubject:
        """Return the subject; raise ``DsocrError`` where it cannot be had."""


def adapter_of(spec: str) -> Adapter | None:
    """Return the adapter that a subject's name asks for, if it asks for one."""
    for beginning, module in ADAPTERS.items():
        if spec.startswith(beginning):
            found: Any = importlib.import_module(f"pytest_dsocr.adapters.{module}")
            return cast("Adapter", found)
    return None


def load_subject(spec: str, setup: Setup) -> TextSubject:
    """Load the subject that ``spec`` names.

    Raises:
        DsocrError: where it cannot be loaded, or is no subject; the message says why.
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
    """Load a subject here, or, with the seconds that a call may take, in a process of its own if it is none already.

    Args:
        spec: as for :func:`load_subject`.
        setup: what it is made for.
        isolated_s: seconds for one call of an isolated one.
        start_limit_s: seconds for starting its process and loading it there.

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
    """Close a subject that can be closed; raise ``SubjectFaultError`` where that fails."""
    with at_stage("close", "close"):
        if callable(close := getattr(subject, "close", None)):
            close()


def level_before_loading(spec: str, *, may_import: bool = True) -> Level | None:
    """Return the level of the subject that ``spec`` names without loading it, or None where that is not known.

    A class is judged by its methods, a function by the class that its return annotation names; a protocol
    there says only what is offered at least.

    Raises:
        DsocrError: where a factory cannot be imported.
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
    """Return which presets and prompts a subject offers, as far as is known without loading it.

    Raises:
        DsocrError: where a factory cannot be imported or an adapter's name is wrong, or of an unknown preset or prompt.
    """
    if spec in ENGINES:
        return Offers()
    if adapter := adapter_of(spec):
        return adapter.offers(spec)
    factory = named_factory(spec) if may_import else None
    return Offers.of(factory if isinstance(factory, type) else None)


def named_factory(spec: str) -> Callable[..., Any]:
    """Import what ``package.module:name`` names; raise ``DsocrError`` where there is no such class or function."""
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise DsocrError(f"{spec!r} names no subject; {VALID}")
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
            return DsocrError(f"{spec!r}: there is no module {error.name}, neither in {here} nor installed; {VALID}")
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
