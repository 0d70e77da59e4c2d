"""Where the vendor's files hold what the contract rests on: found by parsing, without importing anything.

What is kept of the code is names, line numbers and hashes of syntax trees.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.anchors.syntax import Detail, details_of, tree_hash
from pytest_dsocr.reference.vendor_code.files import FILES, check_vendor_folder

CONTRACT: Mapping[str, tuple[str, ...]] = {
    stage: tuple(names.split())
    for stage, names in {
        "tokenizer": "format_messages get_conv_template Conversation text_encode load_image load_pil_images "
        "find_closest_aspect_ratio dynamic_preprocess normalize_transform BasicImageTransform",
        "sam": "build_sam_vit_b _build_sam ImageEncoderViT Block Attention MLPBlock LayerNorm2d PatchEmbed "
        "get_abs_pos_sam get_rel_pos add_decomposed_rel_pos window_partition window_unpartition",
        "clip": "build_clip_l vit_model_cfg VitModel CLIPVisionEmbeddings NoTPTransformer NoTPTransformerBlock "
        "NoTPAttention NoTPFeedForward get_abs_pos quick_gelu LayerNormfp32",
        "projector": "MlpProjector",
        "vision_fusion": "DeepseekOCRModel DeepseekOCRModel.forward",
        "prefill": "DeepseekV2Config DeepseekOCRForCausalLM DeepseekOCRForCausalLM.forward DeepseekV2Model "
        "DeepseekV2Model.forward DeepseekV2DecoderLayer ATTENTION_CLASSES DeepseekV2Attention "
        "DeepseekV2FlashAttention2 DeepseekV2MLP DeepseekV2MoE MoEGate DeepseekV2RMSNorm",
        "decode": "DeepseekOCRForCausalLM.infer DeepseekOCRForCausalLM.prepare_inputs_for_generation NoEOSTextStreamer",
        "postprocess": "re_match extract_coordinates_and_label draw_bounding_boxes process_image_with_refs",
    }.items()
}
"""By stage, what the contract was read from: functions, classes, methods and tables, in whichever file they stand."""

SYMBOLS = tuple(symbol for symbols in CONTRACT.values() for symbol in symbols)


@dataclass(frozen=True)
class Anchor:
    """A function, class, method or table of the contract."""

    file: str
    line: int
    tree: str
    """Hash of its syntax tree, less the anchors inside it."""
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceFile:
    """One of the vendor's files."""

    bytes: int
    sha256: str
    rest: str
    """Hash of its syntax tree, less the anchors inside it."""


@dataclass(frozen=True)
class Anchors:
    """What was found in a folder; a symbol that is nowhere in it is absent."""

    files: Mapping[str, SourceFile]
    symbols: Mapping[str, Anchor]


def read_anchors(folder: Path) -> Anchors:
    """Parse the vendor's files in ``folder``.

    Raises:
        DsocrError: where a file is missing or is not Python.
    """
    check_vendor_folder(folder)
    trees = {name: parse_python(folder / name) for name in FILES}
    places = {symbol: (file, node) for file, tree in trees.items() for symbol, node in _definitions(tree.body)}
    places = {symbol: places[symbol] for symbol in SYMBOLS if symbol in places}
    inner = frozenset(node for _, node in places.values())
    return Anchors(
        {name: _source_file(folder / name, tree_hash(tree, inner)) for name, tree in trees.items()},
        {
            symbol: Anchor(file, node.lineno, tree_hash(node, inner), details_of(symbol, node, inner))
            for symbol, (file, node) in places.items()
        },
    )


def parse_python(path: Path) -> ast.Module:
    """Parse a file; raise ``DsocrError`` where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in the vendor's strings
            return ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:  # the latter for a zero byte, before Python 3.11.4
        raise DsocrError(f"{path} is not Python ({error}); get the file again") from error


def _definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body, f"{node.name}.")
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield prefix + node.targets[0].id, node


def _source_file(path: Path, rest: str) -> SourceFile:
    content = path.read_bytes()
    return SourceFile(len(content), hashlib.sha256(content).hexdigest(), rest)
