"""``python -m ci.training.quality``: measure how well a checkpoint reads, and which of its parts its outputs need."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean

import tokenizers
import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor, nn

from ci.training.generator import generate, grid_of
from ci.training.page import Page
from ci.training.rows import TOKENIZER, words_of
from pytest_dsocr.compare.boxes import pair_up
from pytest_dsocr.contract.markup import Box, Markup, parse
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.result import PageResult
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.models.deepseek_ocr2.qwen2 import Layers
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.reference_result import SpanSeen

LONGEST = 640
"""Tokens at which an output is cut off: more than the longest page takes."""
BATCH = 32
TABLES = ("query_", "position", "pos_embed")
BRANCH_ENDS = ("o_proj", "down_proj", "out_proj", "attn.proj", "lin2", "fc2")
LAST_OF_BRANCH = tuple(f"{one}.{part}" for one in BRANCH_ENDS for part in ("weight", "bias"))
Change = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Quality:
    """Quality of the outputs of some pages; shares are between 0 and 1."""

    pages: int
    exact: float
    """Share of pages with the right number of boxes."""
    overlap: float
    """Mean intersection over union of boxes and their partners."""
    found: float
    """Share of boxes with a partner of the same label that overlaps by more than half."""
    character_errors: float
    """Edits of the texts, as a share of their characters."""
    ended: float
    """Share of pages that end by EOS."""


def measure(pages: Sequence[Page], results: Sequence[PageResult], form: Engine[KVCache]) -> Quality:
    """Compare what was read with the truth."""
    exact, overlaps, good, boxes, edits, characters = [], [], 0, 0, 0, 0
    for page, result in zip(pages, results, strict=True):
        truth = parse(page.output(grounded=True), form.family.form)
        pairs = pair_up(_seen(result.markup), _seen(truth))
        shares = [(_overlap(a.box, b.box), a.label == b.label) for a, b in pairs.both]
        exact.append(len(pairs.actual) == len(pairs.expected))
        overlaps += [share for share, _ in shares]
        good += sum(share > 0.5 and same for share, same in shares)
        boxes += len(pairs.expected)
        texts = ["\n".join(span.text for span in markup.spans) for markup in (result.markup, truth)]
        edits, characters = edits + Levenshtein.distance(*texts), characters + len(texts[1])
    return Quality(
        len(pages), fmean(exact), fmean(overlaps or [0.0]), good / max(boxes, 1), edits / max(characters, 1),
        fmean(result.finish_reason == "eos" for result in results),
    )  # fmt: skip


def _seen(markup: Markup) -> list[SpanSeen]:
    return [SpanSeen(span.label, span.boxes) for span in markup.spans]


def _overlap(a: Box, b: Box) -> float:
    width, height = min(a.x2, b.x2) - max(a.x1, b.x1), min(a.y2, b.y2) - max(a.y1, b.y1)
    shared = max(width, 0) * max(height, 0)
    areas = sum(max(box.x2 - box.x1, 0) * max(box.y2 - box.y1, 0) for box in (a, b))
    return shared / (areas - shared) if areas > shared else 0.0


def read(engine: Engine[KVCache], pages: Sequence[Page], longest: int = LONGEST) -> list[PageResult]:
    """Read pages in batches."""
    batches = (pages[at : at + BATCH] for at in range(0, len(pages), BATCH))
    return [one for some in batches for one in engine.run_batch([page.image for page in some], max_new_tokens=longest)]


def unseen(count: int) -> list[Page]:
    """Draw pages that no training sees."""
    words = words_of(tokenizers.Tokenizer.from_file(str(TOKENIZER)))
    return [generate(seed, words, grid_of(seed)) for seed in range(count)]


def changes(model: nn.Module) -> Iterator[tuple[str, Change]]:
    """Yield each part of the encoder that can be removed, and how."""
    for name, one in model.named_parameters():
        if (name.count(".") == 1 and one.dim() == 1) or any(table in name for table in TABLES):
            yield f"{name} zero", partial(_zero, name)
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and name.endswith(("layers", "blocks")) and name != "model.layers":
            yield from ((f"{name}.{n} removed", partial(_pass, f"{name}.{n}")) for n in range(len(module)))
        if isinstance(module, Layers):
            yield f"{name}.norm removed", partial(_no_norm, name)
            yield f"{name}.mask causal", partial(_mask, name, Tensor.tril)
            yield f"{name}.mask open", partial(_mask, name, torch.ones_like)


def _zero(name: str, model: nn.Module) -> None:
    model.get_parameter(name).data.zero_()


def _pass(name: str, model: nn.Module) -> None:
    """Let a block add nothing: the last weights of its branches are zero."""
    for own, weight in model.get_submodule(name).named_parameters():
        if own.endswith(LAST_OF_BRANCH):
            weight.data.zero_()


def _no_norm(name: str, model: nn.Module) -> None:
    model.get_submodule(name).norm = nn.Identity()


def _mask(name: str, seen: Callable[[Tensor], Tensor], model: nn.Module) -> None:
    """Change which of the tower's tokens attend to which."""
    layers = model.get_submodule(name)
    assert isinstance(layers, Layers)
    made = layers.block_arguments

    def changed(x_BTC: Tensor) -> tuple[Rope, Tensor]:
        rope, mask = made(x_BTC)
        return rope, torch.zeros_like(mask).masked_fill_(~seen(mask == 0), torch.finfo(mask.dtype).min)

    layers.block_arguments = changed  # type: ignore[method-assign]


def ablate(load: Callable[[], Engine[KVCache]], pages: Sequence[Page], longest: int) -> Iterator[tuple[str, int]]:
    """Yield each part that was removed, and how many outputs changed."""
    engine = load()
    intact = [one.token_ids for one in read(engine, pages, longest)]
    for name, change in [*changes(_module(engine))]:
        engine = load()
        change(_module(engine))
        found = [one.token_ids for one in read(engine, pages, longest)]
        yield name, sum(a != b for a, b in zip(found, intact, strict=True))


def _module(engine: Engine[KVCache]) -> nn.Module:
    assert isinstance(engine.model, nn.Module)
    return engine.model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m ci.training.quality", description=__doc__)
    parser.add_argument("checkpoint", help="a name or a folder")
    parser.add_argument("--unseen", type=int, default=0, help="number of pages that no training saw")
    parser.add_argument("--shipped", nargs="*", default=[], help="subsets of the shipped pages, such as all or typeset")
    parser.add_argument("--ablate", type=int, default=0, help="number of unseen pages for each part that is removed")
    parser.add_argument("--longest", type=int, default=LONGEST, help="tokens of an output in ablations")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args(arguments)
    load = partial(
        Engine.from_checkpoint,
        given.checkpoint, device=given.device, dtype=given.dtype, attention="sdpa", instrument="off",
    )  # fmt: skip
    sets = {f"unseen {given.unseen}": unseen(given.unseen)} if given.unseen else {}
    sets |= {subset: [Page.load(path) for path in shipped(subset)] for subset in given.shipped}
    for name, pages in sets.items():
        engine = load()
        print(name, json.dumps(asdict(measure(pages, read(engine, pages), engine))), flush=True)
    for name, changed in ablate(load, unseen(given.ablate), given.longest) if given.ablate else ():
        print(f"{name}: {changed} of {given.ablate} texts changed", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
