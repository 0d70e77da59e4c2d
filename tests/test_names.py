"""Names: no two public types share one, and parts of a model are named only in its folder."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest_dsocr

PACKAGE = Path(pytest_dsocr.__file__).parent
OF_A_MODEL = re.compile(r"\b(clip|sam|qwen2|640|128815|image_newline)\b")
MAY_NAME_ONE = {
    "adapters/export.py": "a field of DeepSeek-OCR-2's published config, which other projects read",
    "adapters/mlx_vlm.py": "another project's model, whose own modules have these names",
    "compare/boxes.py": "numpy's clip",
    "report/strip.py": "an example of a line",
    "compare/tolerances.py": "measured errors of correct variants, by stage",
    "describe/ids.py": "limits of sizes that ports use",
    "describe/windows.py": "the module of the block that all models share",
    "explain/reproducer.py": "the module of the block that all models share",
    "explain/inside.py": "the module of the block that all models share",
    "explain/inside_ways.py": "the module of the block that all models share",
    "explain/catalogue/pixels.py": "the default of Unlimited-OCR's infer_multi, and CLIP's means as mistakes",
}
"""Files outside of ``models`` and ``layers`` that name a part of one model, each with the reason."""


def own_files() -> list[Path]:
    """Return the package's files without the suites, which an installation contains."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "suites")


def test_no_two_public_types_have_one_name() -> None:
    places = defaultdict[str, list[str]](list)
    for path in own_files():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in _type_names(node):
                places[name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def _type_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef):
        names = [node.name]
    elif isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    else:
        names = []
    return [name for name in names if name[0].isupper() and not name.isupper()]


def test_a_model_is_named_in_its_own_folder_alone() -> None:
    others = [path for path in own_files() if path.relative_to(PACKAGE).parts[0] not in ("models", "layers")]
    named = {
        path.relative_to(PACKAGE).as_posix() for path in others if OF_A_MODEL.search(path.read_text(encoding="utf-8"))
    }
    assert named == {*MAY_NAME_ONE}
