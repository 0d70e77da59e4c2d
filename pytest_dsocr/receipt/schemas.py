"""JSON schemas of ``dsocr.json`` and of the receipt, made of the structs that write them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_dsocr.receipt.receipt import Receipt
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.file import CHANGED, FINISHED, REFUSED, RUNNING, Unfinished

DIALECT = "https://json-schema.org/draft/2020-12/schema"
STRUCTS: Mapping[str, tuple[type[msgspec.Struct], ...]] = {
    "dsocr.schema.json": (RunJson, Unfinished),
    "receipt.schema.json": (Receipt,),
}
"""Structs that a file may have, by the name of its schema."""


def schemas() -> dict[str, str]:
    """Return each schema as a file's text, by its name."""
    return {name: json.dumps(_schema(structs), indent=1) + "\n" for name, structs in STRUCTS.items()}


def _schema(structs: tuple[type[msgspec.Struct], ...]) -> dict[str, Any]:
    """Return a schema in which every field that is written is required."""
    found, components = msgspec.json.schema_components(structs)
    for name, one in components.items():
        if "properties" in one and name != Unfinished.__name__:  # which leaves out how it ended while it goes on
            one["required"] = [*one["properties"]]
        if "status" in one.get("properties", ()):
            states = [FINISHED] if name == RunJson.__name__ else [RUNNING, REFUSED, CHANGED]
            one["properties"]["status"] = {"enum": states}
    whole = found[0] if len(found) == 1 else {"anyOf": [*found]}
    return {"$schema": DIALECT, **whole, "$defs": _portable(components)}


def _portable(value: Any) -> Any:
    r"""Return a schema with the anchors of ECMA 262 instead of ``\A`` and ``\Z``."""
    if isinstance(value, dict):
        patterns = {"pattern": value["pattern"].replace(r"\A", "^").replace(r"\Z", "$")} if "pattern" in value else {}
        return {name: _portable(one) for name, one in {**value, **patterns}.items()}
    return [_portable(one) for one in value] if isinstance(value, list) else value
