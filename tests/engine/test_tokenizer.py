"""The tokenizer without transformers, and text from tokens as they come."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, processors

from pytest_dsocr.contract.prompt import BOS, EOS, PAD, SpecialTokens
from pytest_dsocr.engine.tokenizer import TextStream, Tokenizer, byte_level_vocabulary
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError

VENDOR_IDS = {
    BOS: 0,
    EOS: 1,
    PAD: 2,
    "<image>": 128815,
    "<|ref|>": 128816,
    "<|/ref|>": 128817,
    "<|det|>": 128818,
    "<|/det|>": 128819,
    "<|grounding|>": 128820,
    "<td>": 128821,
    "</td>": 128822,
    "<tr>": 128823,
    "</tr>": 128824,
    "<|User|>": 128825,
    "<|Assistant|>": 128826,
}
"""As the vendor's ``tokenizer_config.json`` lists them."""

VENDOR_SIZE = 129280
BYTES = Tokenizer.byte_level(VENDOR_SIZE)
PAGE = "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n# 漢字 x , y .  <td>é 🎉</td>\r\n\x00"

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from(["a", "é", "漢", "🎉", "\ufffd", *VENDOR_IDS])
).map("".join)


def byte_ids(data: bytes) -> list[int]:
    return [3 + byte for byte in data]


@pytest.mark.parametrize(("text", "token_id"), VENDOR_IDS.items())
def test_byte_level_has_the_vendors_special_ids(text: str, token_id: int) -> None:
    assert BYTES.encode(f"a{text}b") == [*byte_ids(b"a"), token_id, *byte_ids(b"b")]
    assert BYTES.decode([token_id]) == text


@pytest.mark.parametrize(("size", "image"), [(VENDOR_SIZE, 128815), (512, 500), (271, 259)])
def test_special_ids_come_from_the_vocabulary(size: int, image: int) -> None:
    assert Tokenizer.byte_level(size).special == SpecialTokens(bos=0, eos=1, pad=2, image=image)


def test_a_vocabulary_too_small_for_the_bytes_is_refused() -> None:
    with pytest.raises(DsocrError, match="at least 271"):
        Tokenizer.byte_level(270)


def test_every_byte_is_one_token_and_nothing_is_added() -> None:
    assert BYTES.encode("é\n") == byte_ids("é\n".encode())
    assert BYTES.encode("") == []


def test_every_id_has_a_text() -> None:
    assert all(BYTES.decode([token_id]) for token_id in range(VENDOR_SIZE))


@given(texts)
def test_any_text_comes_back(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == text


@given(texts)
def test_stream_of_a_text(text: str) -> None:
    stream = TextStream(BYTES)
    pieces = [stream.push(token_id) for token_id in BYTES.encode(text)]
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + stream.flush() == text


# Bytes that begin and continue characters of every length, so that most sequences are broken somewhere.
fragments = st.sampled_from([*byte_ids(b"a\x80\xbf\xc3\xe4\xef\xbd\xf0\x90\xff"), 128815, 7000, VENDOR_SIZE + 1])


@given(st.lists(fragments | st.integers(0, VENDOR_SIZE - 1), max_size=40))
def test_stream_of_any_ids_is_their_text(ids: list[int]) -> None:
    stream = TextStream(BYTES)
    assert "".join(map(stream.push, ids)) + stream.flush() == BYTES.decode(ids)


def test_stream_holds_back_the_bytes_of_a_character() -> None:
    stream = TextStream(BYTES)
    assert [stream.push(token_id) for token_id in BYTES.encode("a漢🎉")] == ["a", "", "", "漢", "", "", "", "🎉"]


def test_stream_is_not_led_astray_by_ids_without_a_text() -> None:
    first, second, third = byte_ids("漢".encode())
    stream = TextStream(BYTES)
    ids = [first, *[VENDOR_SIZE + 1] * 9, second, third]
    assert "".join(map(stream.push, ids)) == BYTES.decode(ids) == "漢"


def test_flush_gives_the_cut_off_character_and_starts_anew() -> None:
    stream = TextStream(BYTES)
    assert stream.push(byte_ids("漢".encode())[0]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.push(byte_ids(b"a")[0]) == "a"


class LongestDecode:
    """Remembers the most tokens that it was asked to decode at once."""

    tokens = 0

    def decode(self, ids: Sequence[int]) -> str:
        self.tokens = max(self.tokens, len(ids))
        return BYTES.decode(ids)


@pytest.mark.parametrize("data", ["漢".encode() * 50, b"\x80" * 150, b"\xe4" * 150], ids=["text", "tails", "heads"])
def test_stream_decodes_a_bounded_window(data: bytes) -> None:
    decoder = LongestDecode()
    stream = TextStream(decoder)
    for token_id in byte_ids(data):
        stream.push(token_id)
    assert decoder.tokens <= 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose tokenizer.json has an ordinary vocabulary of 500 and BOS, EOS and pad as its only specials."""
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
    list_tokens(folder, {502: "<td>", 501: "<|ref|>", 500: "<image>", 0: BOS})
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.special == SpecialTokens(bos=0, eos=1, pad=2, image=500)
    assert tokenizer.encode("<image><|ref|>a<td>") == [500, 501, *byte_ids(b"a"), 502]
    assert tokenizer.decode([500, 501, 502]) == "<image><|ref|><td>"


def test_listed_token_that_is_an_ordinary_word_becomes_one_that_text_is_cut_at(folder: Path) -> None:
    list_tokens(folder, {300: "<300>", 500: "<image>"})
    assert Tokenizer.from_folder(folder).encode("a<300>") == [*byte_ids(b"a"), 300]


def test_folder_whose_files_disagree_on_an_id(folder: Path) -> None:
    list_tokens(folder, {128815: "<image>"})
    with pytest.raises(DsocrError, match=r"<image> at 128815 but tokenizer\.json at 500"):
        Tokenizer.from_folder(folder)


def test_absent_special_tokens_are_named(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace(EOS, "<end>"), encoding="utf-8")
    with pytest.raises(DsocrError, match=re.escape(f"lacks {EOS}, <image>;")):
        Tokenizer.from_folder(folder)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("tokenizer.json", None, "tokenizer.json cannot be read"),
        ("tokenizer.json", "{", "is not a tokenizer"),
        ("tokenizer.json", '{"version": "1.0"}', "is not a tokenizer"),
        ("tokenizer_config.json", "{", "is damaged"),
        ("tokenizer_config.json", "[]", "expected object, got array"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"x": {"content": "y"}}}',
            "added_tokens_decoder: expected str matching",
        ),
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
    """One whose file asks for BOS in front, for truncation and for padding."""
    backend = byte_level_vocabulary(VENDOR_SIZE)
    backend.post_processor = processors.TemplateProcessing(f"{BOS} $A", special_tokens=[(BOS, 0)])
    backend.enable_truncation(8)
    backend.enable_padding(length=999)
    return backend


def test_folder_that_asks_for_bos_truncation_and_padding_gets_none(tmp_path: Path) -> None:
    meddling_vocabulary().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode(PAGE) == BYTES.encode(PAGE)
    assert tokenizer.decode(BYTES.encode(PAGE)) == PAGE


def test_wrapped_transformers_tokenizer_adds_strips_and_tidies_nothing() -> None:
    transformers = pytest.importorskip("transformers")
    backend = meddling_vocabulary()
    backend.no_truncation()
    backend.no_padding()
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BOS, eos_token=EOS, pad_token=PAD, clean_up_tokenization_spaces=True
    )
    assert theirs.encode("a")[0] == 0, "it adds no BOS, so this shows nothing"
    tokenizer = Tokenizer.wrap(theirs)
    assert tokenizer.special == DEFAULT.special
    assert tokenizer.encode(PAGE) == BYTES.encode(PAGE)
    assert tokenizer.decode(BYTES.encode(PAGE)) == PAGE


def test_wrapped_tokenizer_that_answers_unknown_for_a_special_token_lacks_it() -> None:
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.add_special_tokens([AddedToken(text, special=True) for text in (BOS, EOS, PAD)])
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    with pytest.raises(DsocrError, match="lacks <image>;"):
        Tokenizer.wrap(theirs)
