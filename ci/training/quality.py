"""How well a checkpoint reads pages with a known truth, and what it depends on: ``python -m ci.training.quality``."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import tokenizers
import torch
from rapidfuzz.distance import Levenshtein
from torch import nn

from ci.training.generator import generate, grid_of
from ci.training.page import Page
from ci.training.rows import words_of
from pytest_dsocr.compare.boxes import pair_up
from pytest_dsocr.contract.markup import Box, Markup, parse
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import folder_of
from pytest_dsocr.engine.result import PageResult
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.reference_result import SpanSeen

LONGEST = 640
"""Tokens at which an output is cut off: more than the longest page takes."""
BATCH = 32
TOWER = "model.qwen2_model.model.model"
BRANCH_ENDS = ("o_proj", "down_proj", "out_proj", "attn.proj", "lin2", "fc2")
LAST_OF_BRANCH = tuple(f"{one}.{part}" for one in BRANCH_ENDS for part in ("weight", "bias"))
Change = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Quality:
    """What was found on some pages; shares are between 0 and 1."""

    pages: int
    exact: float
    """Pages with the right number of boxes."""
    overlap: float
    """Mean intersection over union of boxes and their partners."""
    found: float
    """Boxes whose partner overlaps by more than half and has the same label."""
    character_errors: float
    """Edits of the texts, as a share of their characters."""
    ended: float
    """Pages ended by EOS."""


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


def unseen(count: int, tokenizer: Path) -> list[Page]:
    """Draw pages that no training sees."""
    words = words_of(tokenizers.Tokenizer.from_file(str(tokenizer)))
    return [generate(seed, words, grid_of(seed)) for seed in range(count)]


def shipped_pages(subset: str) -> list[Page]:
    """Return shipped pages with their truth."""
    return [Page.load(path) for path in shipped(subset)]


def changes(model: nn.Module) -> Iterator[tuple[str, Change]]:
    """Yield each part of the encoder that can be removed, and how."""
    vectors = [name for name, one in model.named_parameters() if one.dim() == 1 and name.count(".") == 1]
    tables = [
        name for name, _ in model.named_parameters() if "query_" in name or "position" in name or "pos_embed" in name
    ]
    for name in (*vectors, *tables):
        yield f"{name} zero", lambda one, name=name: one.get_parameter(name).data.zero_()  # type: ignore[misc]
    lists = [(name, len(one)) for name, one in model.named_modules() if isinstance(one, nn.ModuleList)]
    for name, count in lists:
        if name.endswith(("layers", "blocks")) and name != "model.layers":
            yield from ((f"{name}.{n} removed", _without(f"{name}.{n}")) for n in range(count))
    if any(name.endswith("qwen2_model") for name, _ in model.named_modules()):
        yield (
            "tower's norm removed",
            lambda one: setattr(one.get_submodule(TOWER), "norm", nn.Identity()),
        )
        yield "tower's mask causal", lambda one: _mask(one, lambda sees: sees.tril())
        yield "tower's mask open", lambda one: _mask(one, torch.ones_like)


def _without(name: str) -> Change:
    """Let a block add nothing: the last weights of its branches are zero."""

    def change(model: nn.Module) -> None:
        for own, weight in model.get_submodule(name).named_parameters():
            if own.endswith(LAST_OF_BRANCH):
                weight.data.zero_()

    return change


def _mask(model: nn.Module, seen: Callable[[torch.Tensor], torch.Tensor]) -> None:
    layers = model.get_submodule(TOWER)
    made = layers.mask

    def mask(x: torch.Tensor) -> torch.Tensor:
        hidden = ~seen(made(x) == 0).bool()
        return hidden.new_zeros(hidden.shape, dtype=x.dtype).masked_fill_(hidden, torch.finfo(x.dtype).min)

    layers.mask = mask  # type: ignore[assignment]


def ablate(checkpoint: str, pages: Sequence[Page], device: str, dtype: str, longest: int) -> Iterator[tuple[str, int]]:
    """Yield each part that was removed, and how many outputs changed."""
    made = lambda: Engine.from_checkpoint(checkpoint, device=device, dtype=dtype, attention="sdpa", instrument="off")  # noqa: E731
    engine = made()
    intact = [one.token_ids for one in read(engine, pages, longest)]
    for name, change in [*changes(engine.model)]:  # type: ignore[arg-type]
        engine = made()
        change(engine.model)  # type: ignore[arg-type]
        found = [one.token_ids for one in read(engine, pages, longest)]
        yield name, sum(a != b for a, b in zip(found, intact, strict=True))


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
    parser.add_argument("--out", type=Path, help="JSON file for what was found")
    given = parser.parse_args(arguments)
    tokenizer = folder_of(given.checkpoint) / "tokenizer.json"
    engine = Engine.from_checkpoint(
        given.checkpoint, device=given.device, dtype=given.dtype, attention="sdpa", instrument="off"
    )
    sets = {f"unseen {given.unseen}": unseen(given.unseen, tokenizer)} if given.unseen else {}
    sets |= {subset: shipped_pages(subset) for subset in given.shipped}
    told: dict[str, object] = {}
    for name, pages in sets.items():
        told[name] = asdict(measure(pages, read(engine, pages), engine))
        print(name, json.dumps(told[name]), flush=True)
    if given.ablate:
        pages = unseen(given.ablate, tokenizer)
        for name, changed in ablate(given.checkpoint, pages, given.device, given.dtype, given.longest):
            told[name] = changed
            print(f"{name}: {changed} of {given.ablate} changed", flush=True)
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
