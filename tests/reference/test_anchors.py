"""Anchors and drift, on files in our own words: every change is found by its anchor, with what it affects."""

import ast
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import sha256
from pytest_dsocr.cli.main import main
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.reference.anchors import Anchors, read_anchors
from pytest_dsocr.reference.details import details_of
from pytest_dsocr.reference.drift import EVERY, STAGE_OF, SUITES, change_of, drifts, read_json, suites_of, to_json
from tests.checkout import CHECKOUT
from tests.recordings import FILES, FOLDER, SYMBOLS
from tests.reference.small_folder import CONVERSATION, DECODER, ENCODER, MAIN, body_of, change, write_small_folder

GATE, CAUSAL = "len(pages.views) > 3", "DeepseekOCRForCausalLM"
OF_GATE, OF_KEYS = "DeepseekOCRModel.forward", f"{CAUSAL}.prepare_inputs_for_generation"
CHANGES = (  # file, old text, new text, the anchor that it is in, and the detail that changes with it
    (MAIN, "dynamic_preprocess as it was", "other", "dynamic_preprocess", ""),
    (ENCODER, "def get_rel_pos", "@staticmethod\ndef get_rel_pos", "get_rel_pos", ""),
    (CONVERSATION, "get_conv_template()", "get_conv_template(name=1)", "get_conv_template", ""),
    (MAIN, "self.model(pages", "self.core(pages", "DeepseekOCRForCausalLM.forward", ""),
    (MAIN, "width = 8", "width = 9", "DeepseekOCRModel", ""),
    (DECODER, '_2": DeepseekV2FlashAttention2', '_2": DeepseekV2Attention', "ATTENTION_CLASSES", ""),
    (MAIN, body_of("re_match"), "", "re_match", ""),
    (MAIN, "import json", "import re", f"the rest of {MAIN}", ""),
    (ENCODER, "def get_abs_pos()", "def other(): pass\ndef get_abs_pos()", f"the rest of {ENCODER}", ""),
    (MAIN, "> 3", "> 2", OF_GATE, f"image gate, {MAIN}:16: other code of the same names"),
    (MAIN, "len(pages.views)", "ids", OF_GATE, f"image gate, {MAIN}:16: without len, pages.views and with ids"),
    (MAIN, f"if {GATE}", "while ids", OF_GATE, "image gate, nowhere: without len, pages.views"),
    (MAIN, ", ceiling=8", "", f"{CAUSAL}.infer", f"generate call 1, {MAIN}:26: without ceiling"),
    (MAIN, '"images": None', '"image": None', OF_KEYS, f"image keys, {MAIN}:29: without images and with image"),
    (
        DECODER,
        "past_key_values.update(ids)",
        "ids, past_key_values.seen",
        "DeepseekV2Model.forward",
        f"cache, {DECODER}:4: without past_key_values.update() and with past_key_values.seen",
    ),
)
HARMLESS = {
    "a comment": (MAIN, "        if pages is None:\n", "        # why\n        if pages is None:\n"),
    "layout": (MAIN, "ids=[1], ceiling=8", "ids=[\n    1],\n ceiling = 8"),
    "quotes": (MAIN, '"ids"', "'ids'"),
    "an escape that Python warns of": (MAIN, "import json", 'import json  # "\\d"'),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_small_folder(tmp_path / "folder")


@pytest.fixture
def before(folder: Path) -> Anchors:
    return read_anchors(folder)


def test_every_symbol_is_found_where_it_stands_and_read_again_without_the_code(
    folder: Path, before: Anchors, tmp_path: Path
) -> None:
    assert tuple(before.symbols) == SYMBOLS == tuple(read_json(CHECKOUT / "golden/vendor/anchors.json").symbols)
    for symbol, anchor in before.symbols.items():
        line = (folder / anchor.file).read_text(encoding="utf-8").splitlines()[anchor.line - 1]
        assert symbol.split(".")[-1] in line
    path = tmp_path / "anchors.json"
    path.write_text(to_json(before, {"date": "today"}), encoding="utf-8")
    assert drifts(before, read_json(path)) == []
    assert GATE not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("file", "old", "new", "anchor", "detail"), CHANGES)
def test_a_change_is_reported_by_its_anchor_and_by_no_other(
    file: str, old: str, new: str, anchor: str, detail: str, folder: Path, before: Anchors
) -> None:
    change(folder, file, old, new)
    [drift] = drifts(before, read_anchors(folder))
    assert drift.anchor == anchor
    how = "expected, and found in none" if not new and not detail else r"code: \w{16} expected, \w{16} found"
    assert re.match(how, drift.changes[0])
    assert drift.changes[1:] == ((detail,) if detail else ())


def test_the_image_gate_is_found_by_the_encoder_of_the_model() -> None:
    [forward] = ast.parse("def forward(self, x):\n    if x > 3:\n        self.qwen2_model(x)\n").body
    gates = {name: details_of("M.forward", forward, frozenset(), name) for name in ("qwen2_model", "sam_model")}
    assert gates["qwen2_model"]["image gate"].lines == (2,)
    assert gates["sam_model"] == {}


def test_comments_and_layout_are_no_drift_and_a_moved_function_is_found(folder: Path, before: Anchors) -> None:
    for file, old, new in HARMLESS.values():
        change(folder, file, old, new)
    after = read_anchors(folder)
    assert drifts(before, after) == []
    assert after.files[MAIN].sha256 != before.files[MAIN].sha256
    change(folder, MAIN, body_of("text_encode"), "")
    missing = read_anchors(folder)
    with (folder / CONVERSATION).open("a", encoding="utf-8") as conversation:
        conversation.write(f"\n\n{body_of('text_encode')}")
    [drift] = drifts(before, read_anchors(folder))
    assert (drift.anchor, drift.changes) == ("text_encode", (f"expected in {MAIN}, found in {CONVERSATION}",))
    assert drift.place.startswith(f"{CONVERSATION}:11 ")
    [drift] = drifts(missing, before)
    assert (drift.anchor, drift.changes) == ("text_encode", ("expected nowhere, and found",))
    for text in (b"x = 1\ndef broken(:\n", b"x = '\0'\n", b"x = '\xff'\n", b"-" * 200_000 + b"1"):
        (folder / ENCODER).write_bytes(text)
        with pytest.raises(DsocrError, match=r"deepencoder\.py is not Python "):
            read_anchors(folder)


VENDOR = os.environ.get("DSOCR_VENDOR", "")
OTHERS = MODELS["unlimited_ocr"].vendor.files


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files, their anchors in ``anchors.json``, and in ``golden`` a recording and facts made from them."""
    folder = write_small_folder(tmp_path / "vendor")
    monkeypatch.chdir(tmp_path)
    Path("anchors.json").write_text(to_json(read_anchors(folder), {}), encoding="utf-8")
    made = {"vendor_sha256": {name: sha256((folder / name).read_bytes()) for name in FILES}}
    (tmp_path / "golden/vendor/mine/cpu").mkdir(parents=True)
    for path, content in {
        "facts.json": {"provenance": made},
        "another_models.json": {"provenance": {"vendor_sha256": dict.fromkeys(OTHERS, "00")}},
        "mine/cpu/manifest.json": {"provenance": made},
        "mine/cpu/case.json": {"any": "thing"},
    }.items():
        Path("golden/vendor", path).write_text(json.dumps(content), encoding="utf-8")
    return folder


def watched(vendor: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the drifted anchors, the affected suites and the stale recordings."""
    found = change_of(vendor, Path("anchors.json"), [Path("golden/vendor")])
    assert len(found.stale) + len(found.current) == 2
    stale = [one.path.relative_to("golden/vendor").as_posix() for one in found.stale]
    return [one.anchor for one in found.drifted], [*found.suites], stale


def test_every_anchor_affects_suites_that_there_are_and_every_suite_is_affected_by_some() -> None:
    contracts = [family.vendor.contract for family in MODELS.values()]
    assert {*SUITES} == {stage for one in contracts for stage in one}
    assert {*STAGE_OF} == {symbol for one in contracts for symbols in one.values() for symbol in symbols} > {*SYMBOLS}
    there = {init.parent.name for init in (CHECKOUT / "suites").glob("*/__init__.py")}
    assert there == {*EVERY} == {suite for symbol in SYMBOLS for suite in suites_of(symbol)}
    assert suites_of("the rest of deepencoder.py") == EVERY


@pytest.mark.parametrize("family", MODELS.values(), ids=MODELS)
def test_the_suite_has_a_test_of_each_stage_of_the_named_files(
    family: ModelSpec, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    for name in family.vendor.files:
        (tmp_path / name).touch()
    suite = str(CHECKOUT / "suites/reference/test_anchors.py")
    asked = (f"--dsocr-reference={tmp_path}", f"--dsocr-checkpoint={family.name}:mini")
    lines = pytester.runpytest_inprocess(suite, "--collect-only", "-q", *asked).outlines
    assert re.findall(r"::test_stage\[(\w+)\]", "\n".join(lines)) == [*family.vendor.contract]


ALL = ["facts.json", "mine/cpu/manifest.json"]


def test_a_change_affects_suites_and_makes_what_was_recorded_stale(vendor: Path) -> None:
    change(vendor, MAIN, "import json\n", "import json  # of the standard library\n")
    assert watched(vendor) == ([], [], ALL)
    change(vendor, ENCODER, '"window_partition as', '"changed, as')
    assert watched(vendor) == (["window_partition"], [*SUITES["sam"]], ALL)
    change(vendor, DECODER, "class DeepseekV2Model:", "import os\nclass DeepseekV2Model:")
    assert watched(vendor) == (["window_partition", f"the rest of {DECODER}"], [*EVERY], ALL)
    made = {"vendor_sha256": {name: sha256((vendor / name).read_bytes()) for name in FILES}}
    Path("golden/vendor/facts.json").write_text(json.dumps({"provenance": made}), encoding="utf-8")
    assert watched(vendor)[2] == ALL[1:], "only what was made from other files"


def test_the_command_tells_it_and_writes_an_issue(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["watch-vendor", "vendor", "--anchors=anchors.json", "--golden=golden"]
    body = body_of("load_image")
    change(vendor, MAIN, body, body.replace("as it was", "changed"))
    assert main([*asked, "--markdown=issue.md"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1].strip(",") for line in lines if line.startswith("drifted ")] == ["load_image"]
    assert "suite contract  1 anchor: load_image" in lines
    assert f"stale           golden/vendor/mine/cpu/manifest.json: made from another {MAIN}" in lines
    issue = Path("issue.md").read_text(encoding="utf-8")
    assert issue.startswith("## The vendor's files have changed\n")
    assert [line.strip() for line in lines[:-1]] == [line.strip() for line in issue.splitlines()[2:]]
    Path("golden/vendor/mine/cpu/manifest.json").write_text("{}", encoding="utf-8")
    assert main(asked) == 2
    assert "does not name the files that it was made from" in capsys.readouterr().err
    (vendor / ENCODER).unlink()
    assert main(asked) == 10
    assert f"lacks {ENCODER}" in capsys.readouterr().err


@pytest.mark.skipif(not VENDOR, reason="set DSOCR_VENDOR to a folder with the vendor's Python files")
def test_the_real_files_are_those_of_every_recording(tmp_path: Path) -> None:
    assert main(["watch-vendor", VENDOR]) == 0
    for name in FILES:
        shutil.copy(Path(VENDOR) / name, tmp_path)
    with (tmp_path / MAIN).open("a") as file:
        file.write("# one more line\n")
    found = change_of(tmp_path, FOLDER / "anchors.json", [FOLDER])
    assert (found.files, found.drifted, found.current) == ((MAIN,), (), ())
    assert len(found.stale) > 6
