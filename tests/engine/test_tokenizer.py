"""The tokenizer without transformers, and the synthetic vocabulary."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, processors

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.prompt import BOS, EOS, PAD, SpecialTokens
from pytest_dsocr.engine.tokenizer import MARKUP, Tokenizer, byte_level_vocabulary
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR

VENDOR_IDS = {BOS: 0, EOS: 1, PAD: 2, **{text: 128815 + at for at, text in enumerate(MARKUP)}}
"""Ids in the vendor's ``tokenizer_config.json``."""

VENDOR_SIZE = 129280
BYTES, SMALL = Tokenizer.byte_level(VENDOR_SIZE), Tokenizer.byte_level(512)
PAGE = "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n# 漢字 x , y .  <td>é 🎉</td>\r\n\x00"

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(["a", "é", "漢", "🎉", "\ufffd", *VENDOR_IDS])
).map("".join)


def byte_ids(data: bytes) -> list[int]:
    return [3 + byte for byte in data]


def test_special_ids_come_from_the_vocabulary() -> None:
    assert BYTES.encode("".join(VENDOR_IDS)) == [*VENDOR_IDS.values()]
    assert [VENDOR_IDS[text] for text in ("<|ref|>", "<|grounding|>", "<|Assistant|>")] == [128816, 128820, 128826]
    assert BYTES.special == DEEPSEEK_OCR.special
    assert Tokenizer.byte_level(271).special == SpecialTokens(bos=0, eos=1, pad=2, image=259)
    with pytest.raises(DsocrError, match="at least 271"):
        Tokenizer.byte_level(270)


@given(texts)
def test_a_text_is_its_bytes_and_marks_and_comes_back(text: str) -> None:
    ids = BYTES.encode(text)
    assert BYTES.decode(ids) == text
    pieces = re.split("({})".format("|".join(map(re.escape, VENDOR_IDS))), text)
    expected = [[VENDOR_IDS[piece]] if piece in VENDOR_IDS else byte_ids(piece.encode()) for piece in pieces]
    assert ids == [token_id for piece in expected for token_id in piece]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a folder with a tokenizer.json of 500 ordinary tokens, and BOS, EOS and pad as its only special ones."""
    complete = json.loads(byte_level_vocabulary(512).to_str())
    complete["added_tokens"] = [token for token in complete["added_tokens"] if token["id"] < 500]
    complete["model"]["vocab"] = {t: i for t, i in complete["model"]["vocab"].items() if i < 500}
    (tmp_path / "tokenizer.json").write_text(json.dumps(complete, ensure_ascii=False), encoding="utf-8")
    return tmp_path


def list_tokens(folder: Path, tokens: dict[int, str]) -> None:
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    listed = {str(token_id): {"content": text, **flags} for token_id, text in tokens.items()}
    config = json.dumps({"added_tokens_decoder": listed})
    (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")


def test_folder_whose_config_lists_the_added_tokens(folder: Path) -> None:
    """An added token that was an ordinary word of the vocabulary now splits text."""
    list_tokens(folder, {502: "<td>", 501: "<|ref|>", 500: "<image>", 300: "<300>", 0: BOS})
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.special == SpecialTokens(bos=0, eos=1, pad=2, image=500)
    assert tokenizer.encode("<image><|ref|>a<td><300>") == [500, 501, *byte_ids(b"a"), 502, 300]
    assert tokenizer.decode([500, 501, 502]) == "<image><|ref|><td>"


def test_folder_whose_files_disagree_on_an_id(folder: Path) -> None:
    list_tokens(folder, {128815: "<image>"})
    with pytest.raises(DsocrError, match=r"<image> at 128815 but tokenizer\.json at 500"):
        Tokenizer.from_folder(folder)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("tokenizer_config.json", "{}", f"lacks {re.escape('<image>')};"),
        ("tokenizer.json", None, "tokenizer.json cannot be read"),
        ("tokenizer.json", '{"version": "1.0"}', "is not a tokenizer"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "y"}}}', "expected str matching"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"5": {}}}', "added_tokens_decoder.*field content"),
    ],
)
def test_missing_or_broken_files(file: str, text: str | None, complaint: str, folder: Path) -> None:
    (folder / file).unlink(missing_ok=True)
    if text is not None:
        (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(DsocrError, match=complaint):
        Tokenizer.from_folder(folder)


def meddling_vocabulary() -> tokenizers.Tokenizer:
    """Return a vocabulary with a file that prepends BOS, truncates and pads."""
    backend = byte_level_vocabulary(512)
    backend.post_processor = processors.TemplateProcessing(f"{BOS} $A", special_tokens=[(BOS, 0)])
    backend.enable_truncation(8)
    backend.enable_padding(length=999)
    return backend


def wrapped(backend: tokenizers.Tokenizer, **options: Any) -> Tokenizer:
    transformers = pytest.importorskip("transformers")
    return Tokenizer.wrap(transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **options))


@pytest.mark.parametrize("kind", ["folder", "transformers"])
def test_what_a_tokenizer_adds_cuts_pads_and_tidies_is_left_out(kind: str, tmp_path: Path) -> None:
    backend = meddling_vocabulary()
    if kind == "folder":
        backend.save(str(tmp_path / "tokenizer.json"))
        tokenizer = Tokenizer.from_folder(tmp_path)
    else:
        backend.no_truncation()
        backend.no_padding()
        names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
        tokenizer = wrapped(backend, **names, clean_up_tokenization_spaces=True)
    assert tokenizer.special == SMALL.special
    assert tokenizer.encode(PAGE) == SMALL.encode(PAGE)
    assert tokenizer.decode(SMALL.encode(PAGE)) == PAGE


def test_wrapped_tokenizer_that_answers_unknown_for_a_special_token_lacks_it() -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.add_special_tokens([AddedToken(text, special=True) for text in (BOS, EOS, PAD)])
    with pytest.raises(DsocrError, match="lacks <image>;"):
        wrapped(words, unk_token="[UNK]")
