"""The vendor's published config, read and written again."""

import json

from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import ModelSpec
from tests.vendor_live.conftest import vendor_folder


def check_published_config(family: ModelSpec) -> None:
    """Read the vendor's own config, and write it again: only what no code reads may differ."""
    of_vendor = json.loads((vendor_folder(family) / "config.json").read_text(encoding="utf-8"))
    own = architecture_of(f"{family.name}:synthetic:full")
    assert Architecture.from_config(of_vendor) == own
    for expected, written in (
        (of_vendor, own.to_config()),
        (of_vendor["language_config"], own.to_config()["language_config"]),
    ):
        differing = {name for name, value in expected.items() if value != written.get(name)}
        assert differing <= {
            "_name_or_path",
            "auto_map",
            "torch_dtype",
            "transformers_version",
            "vision_config",
            "language_config",
        }
