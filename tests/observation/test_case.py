"""A case: its name, its page by content, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case, make_case, prompt_name
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, rgb

FREE = DEFAULT.prompts["free"]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    rgb(60, 40).save(tmp_path / "invoice.png")
    return tmp_path / "invoice.png"


def sha256(page: Path) -> str:
    return Case(page, FREE, DEFAULT.presets["tiny"]).page_sha256


def test_the_same_page_in_another_file_has_the_same_hash(page: Path, tmp_path: Path) -> None:
    upright = rgb(60, 40)
    upright.save(tmp_path / "same.bmp")
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[ORIENTATION_TAG] = ROTATED_BY_90
    turned.save(tmp_path / "turned.png", exif=turned.getexif())
    opaque = upright.convert("RGBA")
    opaque.save(tmp_path / "opaque.png")
    assert len({sha256(page), *(sha256(tmp_path / name) for name in ("same.bmp", "turned.png", "opaque.png"))}) == 1


def test_another_page_has_another_hash(page: Path, tmp_path: Path) -> None:
    upright = rgb(60, 40)
    dot = upright.copy()
    red, green, blue = dot.getpixel((59, 39))  # type: ignore[misc]
    dot.putpixel((59, 39), (red, green, blue ^ 1))
    others = {
        "dot": dot,
        "turned": upright.transpose(Image.Transpose.ROTATE_90),
        "reshaped": Image.frombytes("RGB", (40, 60), upright.tobytes()),
    }
    for name, other in others.items():
        other.save(tmp_path / f"{name}.png")
    assert len({sha256(page), *(sha256(tmp_path / f"{name}.png") for name in others)}) == 4


def test_the_hash_is_the_recorded_one(tmp_path: Path) -> None:
    """Recordings are found by it."""
    Image.new("RGB", (2, 1), (1, 2, 3)).save(tmp_path / "p.png")
    assert sha256(tmp_path / "p.png") == hashlib.sha256(b"2x1 \x01\x02\x03\x01\x02\x03").hexdigest()


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        *((text, name) for name, text in DEFAULT.prompts.items()),
        (f" {FREE}\n", "free"),
        ("<image>\nWhat?", "prompt_9ed483f5"),
    ],
)
def test_prompts_by_name(prompt: str, name: str) -> None:
    assert prompt_name(prompt) == name


def test_prompts_without_a_name_differ_by_their_text() -> None:
    assert prompt_name("<image>a") != prompt_name("<image>b")


def test_an_id_names_page_preset_and_prompt(page: Path) -> None:
    assert make_case(page, "markdown", "gundam").id == "invoice-gundam-markdown"
    assert make_case(page, FREE, "tiny").id == "invoice-tiny-free"


def test_what_a_user_types_becomes_a_case(page: Path) -> None:
    assert make_case(str(page), "free", "base", 12) == Case(page, FREE, DEFAULT.presets["base"], 12)
    assert make_case(page, "<image>x", "base") == Case(
        page, "<image>x", DEFAULT.presets["base"], DEFAULT.decoding.max_new_tokens
    )
    assert DEFAULT.decoding.max_new_tokens == 8192


def test_a_case_as_json_tells_all_that_decides_its_output(page: Path) -> None:
    case = make_case(page, "free", "gundam", 12)
    assert json.loads(json.dumps(case.to_json())) == {
        "page": "invoice.png",
        "page_sha256": sha256(page),
        "prompt": FREE,
        "preset": {"name": "gundam", "base_size": 1024, "image_size": 640, "crop": True},
        "max_new_tokens": 12,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"preset": "huge"},
            "there is no preset 'huge'; give one of tiny, small, base, large, gundam, or a Preset of your own",
        ),
        ({"page": "absent.png"}, "there is no page absent.png; give an image file"),
        ({"page": "."}, "there is no page .; give an image file"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 leaves nothing to decode; give at least 1"),
        ({"max_new_tokens": -1}, "max_new_tokens=-1 leaves nothing to decode; give at least 1"),
    ],
)
def test_what_is_not_to_be_had_is_said(changes: dict[str, str | int], message: str, page: Path) -> None:
    typed = {"page": page, "prompt": "free", "preset": "tiny", **changes}
    with pytest.raises(DsocrError) as caught:
        make_case(**typed)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_page_that_is_no_image_is_refused_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(b"no image")
    with pytest.raises(DsocrError, match=r"page\.png"):
        make_case(tmp_path / "page.png", "free", "tiny").to_json()
