"""Scripts that show a difference with torch, numpy and Pillow alone, and their data: input, expected and actual.

The vendor's rule is part of a script only if it gave the expected values here as well.
"""

import ast
import uuid
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.describe.pair import worst_of
from pytest_dsocr.describe.wiring import error_of
from pytest_dsocr.explain.computed import Seen, computed, right_of
from pytest_dsocr.explain.described import NEARER
from pytest_dsocr.explain.mistake import blocks_of, model_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import distance
from pytest_dsocr.layers.sam import split_windows
from pytest_dsocr.models.spec import FUSION, PREPROCESS, TOKENIZER
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam, pixels_sha256

Data = dict[str, Any]
FOLDER = "reproducers"
SCRIPT, DATA = "reproduce.py", "data.npz"
RULES = "pytest_dsocr.explain.reproducers"
MOST_BYTES = 2**20
"""Largest file of data."""
MOST_PACKED = 4
"""Largest ratio of the data to their file that is worth trying: weights in bfloat16 have half of float32's digits."""
SAMPLE_BYTES = 2**15
"""Size of the sample of a tensor."""
CHANNELS = 16
LIMIT = 1e-4
"""Allowed relative error of float32; see :mod:`pytest_dsocr.compare.tolerances`. Pixels must be equal, as in a run."""
SAME = 1e-5
"""Largest error of a rule that is right."""
NORM_FIRST = [1, 1, 2, 1, 2, 1, 1, 1, 2, 1, 2, 1]
"""Dimensions of the weights of a block: a norm, two layers of attention, a norm, two layers of a perceptron."""
OF_POSITIONS = "rel_pos"


def stage_of_reproducer(what: str) -> str:
    """Return the name of a comparison's folder: its stage, or the part of the inputs."""
    stage = TensorName.parse(what).stage if "." in what or "/" in what else what
    return (
        PREPROCESS
        if stage.startswith("images_") and stage != "images_seq_mask"
        else {"input_ids": TOKENIZER, "images_seq_mask": TOKENIZER}.get(stage, stage.replace("/", "-") or "other")
    )


def write(folder: Path, what: str, where: str, data: Data, rule: str = "values") -> None:
    """Write a script and its data into the stage's folder below ``folder``, unless they are there.

    Args:
        folder: folder of the run's result.
        what: comparison that breaks.
        where: case.
        data: ``input``, ``expected``, ``actual``, ``limit`` and whatever the rule takes.
        rule: module of :mod:`pytest_dsocr.explain.reproducers`.
    """
    place = folder / FOLDER / stage_of_reproducer(what)
    if place.exists():
        return
    content = _packed(data)
    if content is None:
        rule, content = "values", _packed({name: data[name] for name in KEPT if name in data})
    if rule != "values" and not _gives_the_same(rule, data):
        rule = "values"
    if content is None:
        return
    partial = place.with_name(f".{uuid.uuid4().hex}")
    with suppress(OSError):  # another worker was first, or the disk is full: the result stands without it
        partial.mkdir(parents=True)
        (partial / DATA).write_bytes(content)
        (partial / SCRIPT).write_text(script(what, where, rule), encoding="utf-8")
        partial.rename(place)


KEPT = ("expected", "actual", "limit", "rows", "shape")


def _gives_the_same(rule: str, data: Data) -> bool:
    """Return whether a rule gives the expected values from the stored ones."""
    with suppress(RuntimeError, ValueError, IndexError, KeyError):
        made, expected = np.asarray(import_module(f"{RULES}.{rule}").rule(data)), np.asarray(data["expected"])
        if made.shape == expected.shape and data["limit"] == 0:
            return bool((made == expected).all())
        return made.shape == expected.shape and error_of(torch.from_numpy(made), torch.from_numpy(expected)) <= SAME
    return False


def _packed(data: Data) -> bytes | None:
    """Return the file of the data; None if it is too large."""
    if sum(np.asarray(one).nbytes for one in data.values()) > MOST_PACKED * MOST_BYTES:
        return None
    content = BytesIO()
    np.savez_compressed(content, **data)
    return content.getvalue() if content.tell() <= MOST_BYTES else None


def script(what: str, where: str, rule: str) -> str:
    """Return the text of a script: the frame with one rule in it."""
    parts = [_parts(name) for name in (rule, "frame")]
    imports = {line for lines, _ in parts for line in lines if RULES not in line}
    own = sorted(imports, key=lambda line: ("torch" in line or "numpy" in line or "PIL" in line, line))
    about = (
        f'"""{what} of {where}: put your port\'s call into port(); the script ends with 0 if the port is right."""',
    )
    bodies = (body for _, body in parts)
    return "\n".join([*about, "", *own, "", "\n\n".join(bodies)]) + "\n"


def _parts(name: str) -> tuple[list[str], str]:
    """Return a module's imports, and the rest of it without its docstring."""
    text = Path(str(import_module(RULES).__file__)).with_name(f"{name}.py").read_text(encoding="utf-8")
    lines, nodes = text.splitlines(), ast.parse(text).body
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    last = imports[-1].end_lineno if imports else nodes[0].end_lineno
    return [lines[node.lineno - 1] for node in imports], "\n".join(lines[last:]).strip()


def write_seen(folder: Path, clean: Clean, case: Case, seen: Seen, expected: Seam | str) -> None:
    """Write the script of a subject's tensor, if the engine's tensor is the reference's.

    Args:
        folder: folder of the run's result.
        clean: right tensors of the page.
        case: the page.
        seen: the subject's tensor.
        expected: summary of the reference's tensor, or the digest of its pixels.
    """
    with torch.no_grad():
        found = (
            _of_pixels(clean, case, seen, expected) if isinstance(expected, str) else _of_seam(clean, seen, expected)
        )
    if found:
        write(folder, seen.what, case.id, *found)


def _of_pixels(clean: Clean, case: Case, seen: Seen, expected: str) -> tuple[Data, str] | None:
    right, actual = getattr(clean.inputs, seen.what).float().cpu(), seen.gave.float()
    if pixels_sha256(getattr(clean.inputs, seen.what).cpu()) != expected or case.is_several:
        return None
    if right.shape != actual.shape:
        sizes = [np.array(one.shape) for one in (right, actual)]
        return {"expected": sizes[0], "actual": sizes[1], "limit": 0}, "values"
    view = worst_of(actual, right)
    page, content = load_image(case.page), BytesIO()
    channels = page.split()
    grey = all(one == channels[0] for one in channels)
    (channels[0] if grey else page).save(content, "PNG")
    crop = view if seen.what == PIXELS[0] else -1
    data = {**_sampled(actual[view], right[view]), "limit": 0}
    data |= {"input": np.frombuffer(content.getvalue(), np.uint8)}
    return {**data, "view": np.array([right.shape[2], *clean.grid, crop, case.preset.is_squashed])}, "pixels"


def _of_seam(clean: Clean, seen: Seen, expected: Seam) -> tuple[Data, str] | None:
    name = TensorName.parse(seen.what)
    right, right_given = right_of(clean, name)
    total = error_of(seen.gave, right)
    if distance(expected, Seam.of(right)) > total / NEARER:
        return None
    own = computed(clean, name, seen)
    if own is not None and error_of(seen.gave, own) * NEARER <= total:  # it is right, and its input is wrong
        wrong = max(zip(seen.given, right_given, strict=False), key=lambda pair: error_of(*pair))
        return _sampled(*wrong), "values"
    if name.stage == FUSION and own is not None:
        return _of_fusion(clean, seen, own)
    best = right if own is None else own
    if name.block is not None and own is not None:
        block = blocks_of(clean.engine, name.stage)[name.block]
        return _of_block(clean, block, seen.gave, best, seen.given[0])
    linear = _linear_of(clean, name)
    if linear is not None and own is not None:
        return _of_linear(clean, name, linear, seen, own)
    return _sampled(seen.gave, best, seen.given[0] if len(seen.given) == 1 else None), "values"


def _host(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu()


def _limit(actual: Tensor, right: Tensor) -> float:
    """Return the allowed error: the usual one, or less where the subject's own is as small."""
    return max(SAME, min(LIMIT, error_of(actual, right) / NEARER))


def _sampled(actual: Tensor, right: Tensor, given: Tensor | None = None) -> Data:
    """Return the rows with the largest errors, as many as a sample may have."""
    actual, right = _host(actual), _host(right)
    if actual.shape != right.shape:
        return {"expected": np.array(right.shape), "actual": np.array(actual.shape), "limit": 0}
    shape = (*right.shape,) if right.ndim > 1 else (len(right), 1)
    wide, flat = right.reshape(-1, shape[-1]), actual.reshape(-1, shape[-1])
    most = max(1, SAMPLE_BYTES // (4 * shape[-1]))
    errors = (flat - wide).norm(dim=1).nan_to_num(torch.inf)
    rows = errors.topk(min(most, len(errors))).indices.sort().values
    data: Data = {"expected": wide[rows].numpy(), "actual": flat[rows].numpy()}
    data |= {"limit": _limit(flat[rows], wide[rows])}
    data |= {"rows": rows.numpy(), "shape": np.array(shape)}
    return data if given is None else {**data, "input": _host(given).numpy()}


def _of_fusion(clean: Clean, seen: Seen, own: Tensor) -> tuple[Data, str]:
    """Return some channels of the features, as their layout is the same for each."""
    of = slice(None, None, max(1, own.shape[-1] // CHANNELS))
    *crops, page = (_host(one)[..., of].numpy() for one in seen.given)
    model = model_of(clean.engine)
    vectors = {"newline": model.newline, "separator": model.separator}
    data: Data = {name: _host(one)[of].numpy() for name, one in vectors.items() if one is not None}
    data |= {"grid": np.array(clean.grid), "page": page[0], **({"crops": crops[0]} if crops else {})}
    sides = {"expected": own, "actual": seen.gave}
    data |= {name: _host(one)[..., of].numpy() for name, one in sides.items()}
    return {**data, "limit": _limit(seen.gave, own)}, "fusion"


def _of_block(clean: Clean, block: Any, gave: Tensor, right: Tensor, given: Tensor) -> tuple[Data, str]:
    """Return one view, or one window of it, with the block's weights if it is one of a vision transformer."""
    gave, right, given = (_host(one) for one in (gave, right, given))
    weights = [(name, _host(one)) for name, one in block.named_parameters()]
    positions, plain = ([one for name, one in weights if (OF_POSITIONS in name) is of] for of in (True, False))
    if [one.ndim for one in plain] != NORM_FIRST or gave.shape != right.shape:
        return _sampled(gave, right, given), "values"
    view = worst_of(gave, right)
    parts = [one[view : view + 1] for one in (gave, right, given)]
    if window := getattr(block, "window", 0):
        parts = _one_window(parts, window)
    data = _sampled(*parts)
    data |= {f"weight_{k}": one.numpy() for k, one in enumerate(plain)}
    data |= {f"positions_{k}": one.numpy() for k, one in enumerate(positions)}
    inner = [one for one in block.modules() if isinstance(one, nn.LayerNorm)]
    heads = next(one.heads for one in block.modules() if hasattr(one, "heads"))
    data |= {"heads": heads, "eps": inner[0].eps, "quick": 0}
    if _packed(data) is None:
        return data, "values"
    return data if _gives_the_same("block", data) else data | {"quick": 1}, "block"


def _one_window(sides: Sequence[Tensor], window: int) -> list[Tensor]:
    """Return the window without padding where the first of the sides differs most from the second."""
    height, width = (size // window * window for size in sides[0].shape[1:3])
    cut = [split_windows(one[:, :height, :width], window) for one in sides]
    worst = worst_of(cut[0], cut[1])
    return [one[worst : worst + 1] for one in cut]


def _linear_of(clean: Clean, name: TensorName) -> nn.Linear | None:
    """Return the linear layer that a stage consists of; None for another stage."""
    path = clean.engine.family.stage[name.stage].module
    modules = [*model_of(clean.engine).get_submodule(path).modules()] if path else []
    layers = [one for one in modules if isinstance(one, nn.Linear)]
    return layers[0] if len(layers) == 1 and len([*layers[0].parameters()]) == 2 and len(modules) <= 2 else None


def _of_linear(clean: Clean, name: TensorName, layer: nn.Linear, seen: Seen, own: Tensor) -> tuple[Data, str]:
    kept: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _m, args: kept.append(args[0])):
        computed.__wrapped__(clean, name, seen)  # the cached output would not run the layer
    data = _sampled(seen.gave, own)
    if "rows" not in data:
        return data, "values"
    del data["shape"]
    rows = _host(kept[0]).reshape(-1, kept[0].shape[-1])[torch.from_numpy(data.pop("rows"))]
    weights = {"weight": _host(layer.weight).numpy(), "bias": _host(layer.bias).numpy()}
    return {**data, **weights, "input": rows.numpy()}, "linear"
