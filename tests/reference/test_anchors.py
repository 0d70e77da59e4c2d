"""Anchors and drift, on files in our own words: every kind of change is told by the anchor that it touches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.anchors import SYMBOLS, Anchors, read_anchors
from pytest_dsocr.reference.drift import drifts, read_json, to_json
from tests.reference.small_folder import CONVERSATION, DECODER, ENCODER, MAIN, body_of, change, write_small_folder

FORWARD = "DeepseekOCRModel.forward"
INFER = "DeepseekOCRForCausalLM.infer"
PREPARE = "DeepseekOCRForCausalLM.prepare_inputs_for_generation"
GATE = "len(pages.views) > 3 or self.eager"

# file, old text, new text, the one anchor that is told, what is told of it
CHANGES = {
    "a line of a function": (MAIN, "dynamic_preprocess as it was", "other", "dynamic_preprocess", ["code: "]),
    "a decorator": (ENCODER, "def get_rel_pos", "@staticmethod\ndef get_rel_pos", "get_rel_pos", ["code: "]),
    "a default": (CONVERSATION, "get_conv_template()", "get_conv_template(name=1)", "get_conv_template", ["code: "]),
    "a method, not its class": (
        MAIN,
        "self.model(pages",
        "self.core(pages",
        "DeepseekOCRForCausalLM.forward",
        ["code"],
    ),
    "a class, not its method": (MAIN, "width = 8", "width = 9", "DeepseekOCRModel", ["code: "]),
    "the gate's number": (MAIN, "> 3", "> 2", FORWARD, ["image gate, line 16: ", "code: "]),
    "what the gate reads": (
        MAIN,
        GATE,
        "pages.crops",
        FORWARD,
        [
            "image gate, line 16: len, pages.views, self.eager expected, and gone",
            "pages.crops not expected",
            ": ",
            "code",
        ],
    ),
    "the inner of two gates": (MAIN, f"if {GATE}:", "for _ in [1]:", FORWARD, ["line 17: len, ", "image gate", "code"]),
    "no gate": (
        MAIN,
        "self.sam_model(pages)",
        "pages",
        FORWARD,
        ["image gate: expected line 16, found nowhere", "code"],
    ),
    "an image key": (MAIN, ', "images": None', "", PREPARE, ["image keys, line 34: images expected, and gone", "code"]),
    "an image key that is set": (
        MAIN,
        '["images_seq_mask"]',
        '["mask"]',
        PREPARE,
        ["images_seq_mask expected", "code"],
    ),
    "one more image key": (MAIN, '{"ids"', '{"image": 1, "ids"', PREPARE, ["image not expected, and found", "code"]),
    "a keyword of generate": (
        MAIN,
        "views=None, ceiling=4",
        "views=None",
        INFER,
        ["call 1, line 28: ceiling", ": ", "co"],
    ),
    "a value given to generate": (MAIN, "ceiling=8", "ceiling=9", INFER, ["generate call 2, line 29: ", "code: "]),
    "one call of generate": (
        MAIN,
        "return self.generate(ids=[1], views=None, ceiling=8)",
        "return None",
        INFER,
        ["generate call 2: expected line 29, found nowhere", "code: "],
    ),
    "a call on the cache": (
        MAIN,
        "past_key_values.get_seq_length()",
        "past_key_values.get_length()",
        PREPARE,
        ["past_key_values.get_seq_length() expected, and gone", "past_key_values.get_length() not expected", "code: "],
    ),
    "an attribute of the cache": (MAIN, ".seen_tokens", ".seen_tokens()", PREPARE, ["and gone", "and found", "code: "]),
    "a class of attention": (
        DECODER,
        '_2": DeepseekV2FlashAttention2',
        '_2": DeepseekV2Attention',
        "ATTENTION_CLASSES",
        ["flash_attention_2: DeepseekV2FlashAttention2 expected, and gone", "not expected, and found", "code: "],
    ),
    "a missing function": (MAIN, body_of("re_match"), "", "re_match", ["expected, and found in none of the files"]),
    "an import": (MAIN, "import json", "import re", f"the rest of {MAIN}", ["code: "]),
    "a new function": (
        ENCODER,
        "def get_abs_pos()",
        "def other(): pass\ndef get_abs_pos()",
        f"the rest of {ENCODER}",
        [": "],
    ),
}
HARMLESS = {
    "a comment": (MAIN, "        if fast:\n", "        # why\n        if fast:\n"),
    "layout": (MAIN, "[1], views=None, ceiling=4", "[\n    1],\n views=None, ceiling = 4"),
    "quotes": (MAIN, '"ids"', "'ids'"),
    "an escape that Python warns of": (MAIN, "import json", 'import json  # "\\d"'),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_small_folder(tmp_path / "folder")


@pytest.fixture
def before(folder: Path) -> Anchors:
    return read_anchors(folder)


def test_every_symbol_is_found_where_it_stands(folder: Path, before: Anchors) -> None:
    assert tuple(before.symbols) == SYMBOLS
    for symbol, anchor in before.symbols.items():
        line = (folder / anchor.file).read_text(encoding="utf-8").splitlines()[anchor.line - 1]
        assert symbol.split(".")[-1] in line


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_by_its_anchor_and_by_no_other(folder: Path, before: Anchors, name: str) -> None:
    file, old, new, anchor, told = CHANGES[name]
    change(folder, file, old, new)
    (drift,) = drifts(before, read_anchors(folder))
    assert drift.anchor == anchor
    assert len(drift.changes) == len(told)
    assert all(part in line for part, line in zip(told, drift.changes, strict=True)), drift.changes


@pytest.mark.parametrize("name", HARMLESS)
def test_comments_and_layout_are_no_drift(folder: Path, before: Anchors, name: str) -> None:
    file, old, new = HARMLESS[name]
    change(folder, file, old, new)
    after = read_anchors(folder)
    assert drifts(before, after) == []
    assert after.files[file].sha256 != before.files[file].sha256


def test_a_moved_function_is_found_where_it_is(folder: Path, before: Anchors) -> None:
    change(folder, MAIN, body_of("text_encode"), "")
    with (folder / CONVERSATION).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{body_of('text_encode')}")
    (drift,) = drifts(before, read_anchors(folder))
    assert drift.anchor == "text_encode"
    assert drift.place.startswith(f"{CONVERSATION}:11 ")
    assert drift.changes == (f"expected in {MAIN}, found in {CONVERSATION}",)


def test_a_function_that_was_missing_is_told_when_it_comes(folder: Path, before: Anchors) -> None:
    change(folder, MAIN, body_of("re_match"), "")
    (drift,) = drifts(read_anchors(folder), before)
    assert (drift.anchor, drift.changes) == ("re_match", ("expected nowhere, and found",))


def test_the_gate_is_the_outermost_condition_on_vision(before: Anchors) -> None:
    gate = before.symbols[FORWARD].details["image gate"]
    assert gate.lines == (16,)
    assert gate.names == ("len", "pages.views", "self.eager")
    assert gate.text == GATE


def test_what_is_written_down_is_read_again_without_the_code(tmp_path: Path, before: Anchors) -> None:
    path = tmp_path / "anchors.json"
    path.write_text(to_json(before, {"date": "today"}), encoding="utf-8")
    assert drifts(before, read_json(path)) == []
    assert json.loads(path.read_text(encoding="utf-8"))["provenance"] == {"date": "today"}
    assert GATE not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": {}, "symbols": {}}', '{"files": []}'])
def test_a_damaged_file_of_anchors_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "anchors.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DsocrError, match=r"anchors\.json .*; name another file with --anchors"):
        read_json(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b"x = 1\ndef broken(:\n",
            r"deepencoder\.py is not Python \(invalid syntax \(deepencoder\.py, line 2\)\); get",
        ),
        (b"x = '\0'\n", r"deepencoder\.py is not Python \(.*null byte"),
        (b"x = '\xff'\n", r"deepencoder\.py is not Python \(.*utf-8"),
    ],
)
def test_a_file_that_is_not_python_is_an_error(folder: Path, text: bytes, message: str) -> None:
    (folder / ENCODER).write_bytes(text)
    with pytest.raises(DsocrError, match=message):
        read_anchors(folder)


def test_a_missing_file_is_an_error(folder: Path) -> None:
    (folder / ENCODER).unlink()
    with pytest.raises(DsocrError, match=r"lacks deepencoder\.py; give a folder"):
        read_anchors(folder)


def test_no_folder_is_an_error(folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(DsocrError, match="lacks modeling_deepseekocr"):
        read_anchors(folder)
