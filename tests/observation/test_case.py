"""A case: its name, its page by content, and what is refused."""

import json
from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case, PageFaultError, make_case, prompt_name
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, rgb

FREE = DEFAULT.prompts["free"]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    rgb(60, 40).save(tmp_path / "invoice.png")
    return tmp_path / "invoice.png"


def sha256(page: Path) -> str:
    return Case(page, FREE, DEFAULT.presets["tiny"]).page_sha256


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


def test_what_a_user_types_becomes_a_case(page: Path) -> None:
    assert make_case(str(page), "free", "base", 12) == Case(page, FREE, DEFAULT.presets["base"], 12)
    assert make_case(page, "<image>x", "base").max_new_tokens == 8192
    assert [make_case(page, one, "tiny").id for one in ("markdown", FREE)] == [
        "invoice-tiny-markdown",
        "invoice-tiny-free",
    ]


def test_a_case_as_json_tells_all_that_decides_its_output(page: Path) -> None:
    case = make_case(page, "free", "gundam", 12)
    assert json.loads(json.dumps(case.to_json())) == {
        "page": "invoice.png",
        "page_sha256": sha256(page),
        "prompt": FREE,
        "preset": {"name": "gundam", "base_size": 1024, "image_size": 640, "crop": True},
        "max_new_tokens": 12,
    }


@pytest.mark.parametrize("changes", [{"preset": "huge"}, {"page": "absent.png"}, {"page": "."}, {"max_new_tokens": 0}])
def test_what_is_not_to_be_had_is_refused(changes: dict[str, str | int], page: Path) -> None:
    [value] = changes.values()
    with pytest.raises(DsocrError, match=str(value)):
        make_case(**{"page": page, "prompt": "free", "preset": "tiny", **changes})  # type: ignore[arg-type]


def test_the_hash_is_of_the_page_as_it_is_loaded(page: Path, tmp_path: Path) -> None:
    upright = rgb(60, 40)
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[ORIENTATION_TAG] = ROTATED_BY_90
    turned.save(tmp_path / "turned.png", exif=turned.getexif())
    upright.convert("RGBA").save(tmp_path / "opaque.png")
    Image.frombytes("RGB", (40, 60), upright.tobytes()).save(tmp_path / "reshaped.png")
    assert sha256(page) == sha256(tmp_path / "turned.png") == sha256(tmp_path / "opaque.png")
    assert sha256(page) != sha256(tmp_path / "reshaped.png")
    (tmp_path / "page.png").write_bytes(b"no image")
    with pytest.raises(PageFaultError, match=r"page\.png"):
        sha256(tmp_path / "page.png")
