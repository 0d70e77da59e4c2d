"""From a name to a subject: what is loaded, how its factory is called, and what is said of a bad name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.level import Level
from pytest_dsocr.subjects.loading import level_before_loading, load_subject
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject

MODULE = """
from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.subjects.protocol import Setup, TextSubject

if TYPE_CHECKING:
    from nowhere import Hidden


class Reader:
    def __init__(self, setup=None):
        self.setup = setup

    def read(self, page, *, prompt, preset, max_new_tokens):
        return ""

    class Inner:
        def read(self, *page, **how):
            return "inner"


class Staged(Reader):
    def inputs(self, page, *, prompt, preset): ...
    def vision(self, inputs): ...
    def prefill(self, inputs, vision_fusion): ...
    def step(self, state, token): ...


class Bare:
    def __init__(self):
        self.read = lambda *page, **how: "bare"


class Half(Reader):
    def vision(self, inputs): ...


class Many:
    def __init__(self, model, tokenizer):
        pass


def make(setup) -> Reader:
    return Reader(setup)


def make_nothing() -> Staged:
    return Staged("nothing was given")


def make_protocol(setup: Setup) -> TextSubject:
    return Staged(setup)


def make_hidden(setup) -> Hidden:
    return Reader(setup)


def make_unsaid(setup):
    return Reader(setup)


def make_named(*, setup):
    return Reader(setup)


def broken(setup):
    raise RuntimeError("no weights")


def refusing(setup):
    raise DsocrError("there is no port of it here; start one")


number = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, which is the current one and not yet on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "their_model.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "failing.py").write_text("import absent_engine\n", encoding="utf-8")
    (tmp_path / "wrong.py").write_text("def f(:\n", encoding="utf-8")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "inside.py").write_text(MODULE, encoding="utf-8")
    yield tmp_path
    for name in ("their_model", "failing", "wrong", "package", "package.inside"):
        sys.modules.pop(name, None)


SETUP = Setup("mini", "cpu", "float32", "sdpa")


@pytest.mark.parametrize(
    ("spec", "kind", "setup"),
    [
        ("their_model:Reader", "Reader", SETUP),
        ("their_model:make", "Reader", SETUP),
        ("their_model:make_nothing", "Staged", "nothing was given"),
        ("package.inside:Reader", "Reader", SETUP),
    ],
)
def test_a_factory_gets_a_setup_or_nothing(spec: str, kind: str, setup: object) -> None:
    subject = load_subject(spec, SETUP)
    assert type(subject).__name__ == kind
    assert vars(subject)["setup"] == setup


@pytest.mark.parametrize("spec", ["their_model:Bare", "their_model:Reader.Inner"])
def test_classes_without_arguments_and_inside_of_others_are_factories(spec: str) -> None:
    assert callable(load_subject(spec, SETUP).read)


def test_the_session_is_loaded_as_the_setup_says() -> None:
    subject = load_subject("session", Setup("synthetic:tiny", dtype="bfloat16"))
    assert isinstance(subject, SessionSubject)
    assert subject.dtype == "bfloat16"


def test_the_fast_session_is_another_engine() -> None:
    subject = load_subject("session:fast", Setup("synthetic:tiny", dtype="bfloat16"))
    assert isinstance(subject, SessionSubject)
    assert type(subject.session.model).__name__ == "FastDeepseekOCR"
    assert subject.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("spec", "level"),
    [
        ("session", Level.MODULES),
        ("session:fast", Level.MODULES),
        ("vendor:anywhere", Level.MODULES),
        ("their_model:Reader", Level.TEXT),
        ("their_model:Staged", Level.STAGES),
        ("their_model:make", Level.TEXT),
        ("their_model:make_nothing", Level.STAGES),
        ("their_model:make_protocol", None),
        ("their_model:make_hidden", None),
        ("their_model:make_unsaid", None),
        ("their_model:Bare", None),
        ("their_model:Half", None),
    ],
)
def test_the_level_is_told_before_anything_is_loaded(spec: str, level: Level | None) -> None:
    assert level_before_loading(spec) == level


REFUSED = [
    (
        "nothing",
        "'nothing' names no subject; give session, session:fast, vendor:FOLDER, fork:FOLDER, package.module:factory, "
        "processor:package.module:Class, "
        "cli:COMMAND, or http://HOST:PORT/v1?model=NAME",
    ),
    (":Reader", "':Reader' names no subject; give session, session:fast"),
    ("absent:Reader", "'absent:Reader': there is no module absent, neither in "),
    ("package.absent:Reader", "'package.absent:Reader': there is no module package.absent, neither in "),
    ("failing:Reader", "failing cannot be imported (ModuleNotFoundError: No module named 'absent_engine'); fix it"),
    ("wrong:f", "wrong cannot be imported (SyntaxError: "),
    ("their_model:Writer", "their_model.py) has no Writer; it has Reader, Staged, Bare, Half, Many, make, "),
    ("package:Reader", "has no Reader; it has no class or function of its own"),
    ("their_model:number", "their_model:number cannot be called (it is of type int); give a class or a function"),
]
ONLY_LOADED = [
    ("their_model:Many", "their_model:Many(model, tokenizer) cannot be called with one Setup (missing a required"),
    ("their_model:make_named", "their_model:make_named(*, setup) cannot be called with one Setup (too many positional"),
    ("their_model:broken", "their_model:broken could not make its subject (RuntimeError: no weights); see the error"),
    ("their_model:refusing", "there is no port of it here; start one"),
    ("their_model:Half", "Half has vision of L2, and lacks inputs, prefill, step; see pytest_dsocr.subjects.protocol"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED + ONLY_LOADED)
def test_what_cannot_be_loaded_is_said(spec: str, message: str) -> None:
    with pytest.raises(DsocrError) as caught:
        load_subject(spec, SETUP)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_what_cannot_be_imported_is_said_before_loading(spec: str, message: str) -> None:
    with pytest.raises(DsocrError) as caught:
        level_before_loading(spec)
    assert message in str(caught.value)


def test_the_current_folder_comes_first_and_once(folder: Path) -> None:
    for _ in range(2):
        load_subject("their_model:Reader", SETUP)
    assert sys.path[0] == str(folder)
    assert sys.path.count(str(folder)) == 1


def test_what_a_factory_raised_is_chained() -> None:
    with pytest.raises(DsocrError) as caught:
        load_subject("their_model:broken", SETUP)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_levels_are_told_without_anything_heavy() -> None:
    code = (
        "import sys; from pytest_dsocr.subjects.loading import level_before_loading as level; "
        "print(level('session'), level('vendor:there'), level('their_model:Staged'), "
        "[name for name in ('torch', 'numpy', 'PIL', 'scipy', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "L3 L3 L2 []\n"
