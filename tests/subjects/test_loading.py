"""From a name to a subject: what is loaded and offered, how its factory is called, and the message for a bad name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.adapters import vendor
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.attention import attention_function
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.loading import level_before_loading, load_subject, offers_before_loading
from pytest_dsocr.subjects.protocol import NotOfferedError, Offers, Setup, level_of

MODULE = """
from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsocr.base.errors import DsocrError
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


class Offering(Reader):
    presets, prompts = ("gundam",), ("markdown",)


class Misnamed(Reader):
    presets = ("gundam", "huge")


def make(setup) -> Reader: return Reader(setup)
def make_nothing() -> Staged: return Staged("nothing was given")
def make_protocol(setup: Setup) -> TextSubject: return Staged(setup)
def make_hidden(setup) -> Hidden: return Reader(setup)
def make_unsaid(setup): return Reader(setup)
def make_named(*, setup): return Reader(setup)
def broken(setup): raise RuntimeError("no weights")
def refusing(setup): raise DsocrError("there is no port of it here; start one")


number = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a user's folder, which is the current one and not yet on the path."""
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
        ("their_model:Bare", "Bare", None),
        ("their_model:Reader.Inner", "Inner", None),
    ],
)
def test_a_factory_gets_a_setup_or_nothing(spec: str, kind: str, setup: object) -> None:
    subject = load_subject(spec, SETUP)
    assert type(subject).__name__ == kind
    assert vars(subject).get("setup") == setup
    assert sys.path[0] == str(Path.cwd())


@pytest.mark.parametrize(("spec", "model"), [("engine", "DeepseekOCR"), ("engine:fast", "FastDeepseekOCR")])
def test_the_engine_is_loaded_as_the_setup_says(spec: str, model: str) -> None:
    subject = load_subject(spec, Setup("synthetic:tiny", dtype="bfloat16", attention="sdpa"))
    assert isinstance(subject, EngineSubject)
    assert (type(subject.engine.model).__name__, subject.dtype) == (model, "bfloat16")
    assert subject.policy is subject.engine.policy
    if spec == "engine":
        [attend] = {layer.self_attn.attend for layer in model_of(subject.engine).model.decoder_layers()}
        assert attend is attention_function("sdpa")
    assert subject.module("lm_head") is subject.engine.model.get_submodule("lm_head")
    assert level_of(subject) is level_of(EngineSubject) is Level.MODULES
    with pytest.raises(AttributeError):
        subject.module("model.layers.99")


LEVELS = {
    **dict.fromkeys(("engine", "engine:fast", "vendor:anywhere"), Level.MODULES),
    **dict.fromkeys(("their_model:Reader", "their_model:make", "cli:cat {page}"), Level.TEXT),
    **dict.fromkeys(("their_model:Staged", "their_model:make_nothing"), Level.STAGES),
    **dict.fromkeys(f"their_model:{name}" for name in ("make_protocol", "make_hidden", "make_unsaid", "Bare", "Half")),
}


def test_the_level_is_known_before_anything_is_loaded() -> None:
    assert {spec: level_before_loading(spec) for spec in LEVELS} == LEVELS


REFUSED = (
    *("nothing", ":Reader", "absent:Reader", "package.absent:Reader", "failing:Reader", "wrong:f"),
    *("their_model:Writer", "package:Reader", "their_model:number"),
)
ONLY_LOADED = ("Many", "make_named", "broken", "refusing", "Half")


def test_what_cannot_be_loaded_is_said(folder: Path, snapshot: SnapshotAssertion) -> None:
    found = {}
    for spec in (*REFUSED, *(f"their_model:{name}" for name in ONLY_LOADED)):
        with pytest.raises(DsocrError) as caught:
            load_subject(spec, SETUP)
        found[spec] = re.sub(r"\(SyntaxError: .*?\);", "(SyntaxError);", str(caught.value).replace(str(folder), "HERE"))
        assert "\n" not in found[spec]
        if spec in REFUSED:
            with pytest.raises(DsocrError, match=re.escape(str(caught.value))):
                level_before_loading(spec)
        assert (spec != "their_model:broken") or isinstance(caught.value.__cause__, RuntimeError)
    assert found == snapshot


GUNDAM = Case(Path("page.png"), DEEPSEEK_OCR.prompts["markdown"], DEEPSEEK_OCR.presets["gundam"], 4, DEEPSEEK_OCR)


def test_what_is_not_offered_is_not_asked() -> None:
    subject = CheckedSubject(load_subject("their_model:Offering", SETUP))
    assert subject.read(GUNDAM) == ""
    for ask in (subject.read, subject.inputs):
        with pytest.raises(NotOfferedError, match=r"^not offered: the preset tiny; the subject offers gundam$"):
            ask(replace(GUNDAM, preset=DEEPSEEK_OCR.presets["tiny"]))
        with pytest.raises(NotOfferedError, match=r"^not offered: the prompt free; the subject offers markdown$"):
            ask(replace(GUNDAM, prompt=DEEPSEEK_OCR.prompts["free"]))


def test_what_is_offered_is_known_before_it_is_loaded() -> None:
    assert offers_before_loading("their_model:Offering").summary == "; presets: gundam; prompts: markdown"
    assert offers_before_loading("cli:--presets=tiny,base cat {page}") == Offers(("tiny", "base"))
    assert Offers.of(load_subject("cli:--prompts=ocr cat {page}", Setup())) == Offers(prompts=("ocr",))
    for included in ("engine", "engine:fast"):
        assert offers_before_loading(included).summary == ""
    for spec, message in {
        "their_model:Misnamed": "the subject's presets name 'huge'; give names of tiny, small, base, large, gundam",
        "cli:--prompts=none cat {page}": "the subject's prompts name 'none'; give names of markdown, ocr, free, ",
        "vendor:absent": "absent lacks a file with the model's class",
        "processor:absent:Nobody": "there is no module absent",
    }.items():
        with pytest.raises(DsocrError, match=message):
            offers_before_loading(spec)


@pytest.mark.parametrize("installed", ["5.1.0", "4.460.0", "4.46.3"])
def test_the_vendors_model_is_refused_where_its_code_does_not_run(
    installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "versions", lambda: {"transformers": installed})
    message = f"runs with transformers 4.46 and here is {installed}; run pytest in an env"
    with pytest.raises(DsocrError, match=r"modeling_deepseekocr\.py" if installed == "4.46.3" else message):
        load_subject(f"vendor:{tmp_path}", Setup("synthetic:tiny"))


def test_levels_are_reported_without_anything_heavy() -> None:
    code = (
        "import sys; from pytest_dsocr.subjects.loading import level_before_loading as level; "
        "print(level('engine'), level('vendor:there'), level('their_model:Staged'), "
        "[name for name in ('torch', 'numpy', 'PIL', 'scipy', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "L3 L3 L2 []\n"
