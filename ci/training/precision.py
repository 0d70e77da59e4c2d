"""What rounding does to the embedded checkpoint: ``python -m ci.training.precision``.

Each page is read in float32; then the same session in bf16 is asked, along those very tokens, what it would say next,
and reads the page by itself. A table, and ``precision.json`` with every token that differs and its margins.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median

import torch
from PIL import Image

from ci.training.reading import CEILING, Source, each, open_page
from ci.training.telling import tell, write_json
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.engine.session import Session
from pytest_dsocr.pages.page_list import SUBSETS, shipped


@dataclass(frozen=True)
class Difference:
    """A step at which the two dtypes choose differently after the same tokens."""

    step: int
    float32: str
    bfloat16: str
    float32_margin: float
    """How far the bf16 side's choice is behind in the float32 side's logits."""
    bfloat16_margin: float
    """How far the float32 side's choice is behind in the bf16 side's logits."""


@dataclass(frozen=True)
class Rounded:
    """What rounding did to one page."""

    page: str
    tokens: int
    differences: tuple[Difference, ...]
    same_answer: bool
    """Whether bf16 by itself says the same from beginning to end."""
    same_boxes: bool
    """Whether bf16 by itself finds as many boxes."""
    margins: tuple[float, ...]
    """Of every step, the best float32 logit over the second best."""


def precision(options: argparse.Namespace) -> Iterator[str]:
    """Read the subset that ``options`` name, yield the figures as lines, and write them to ``options.out``.

    Raises:
        DsocrError: where there is no such checkpoint, subset or device.
    """
    checkpoint, pages = resolve(options.checkpoint), shipped(options.subset)
    task = partial(compare_page, options.checkpoint, options.device)
    rounded = list(each(task, pages, options.jobs))
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor()
    yield f"{checkpoint.label} on {device}: bfloat16 along the float32 tokens of {len(pages)} pages"
    yield from table(rounded)
    path = options.out / "precision.json"
    found = {"checkpoint": checkpoint.label, "sha256": checkpoint.sha256, "device": device, "torch": torch.__version__}
    write_json(path, {**found, "subset": options.subset, "pages": [asdict(page) for page in rounded]})
    yield f"written     {path}"


def table(rounded: Sequence[Rounded]) -> Iterator[str]:
    """Yield a line for each figure."""
    steps = sum(page.tokens for page in rounded)
    differing = [difference for page in rounded for difference in page.differences]
    yield f"tokens      {steps - len(differing)} of {steps} equal, {len(differing)} differ"
    if differing:
        worst = max(differing, key=lambda difference: difference.float32_margin)
        middle = median(difference.float32_margin for difference in differing)
        yield f"margins     of those that differ: {middle:.3f} logits (median), {worst.float32_margin:.3f} (largest)"
    usual = median(margin for page in rounded for margin in page.margins)
    yield f"            of all steps: {usual:.3f} logits (median)"
    yield f"answers     {sum(page.same_answer for page in rounded)} of {len(rounded)} the same to the end"
    yield f"boxes       {sum(page.same_boxes for page in rounded)} of {len(rounded)} pages with the same number"


def compare_page(checkpoint: str, device: str, source: Source) -> Rounded:
    """Read one page in both dtypes."""
    name, page = open_page(source)
    exact, rounded = (_session(checkpoint, device, dtype) for dtype in ("float32", "bfloat16"))
    read = exact.run(page.image, max_new_tokens=CEILING)
    alone = rounded.run(page.image, max_new_tokens=CEILING)
    theirs, mine = (_logits_along(session, page.image, read.token_ids) for session in (exact, rounded))
    return Rounded(
        page=name,
        tokens=len(read.token_ids),
        differences=tuple(_differences(exact, read.token_ids, theirs, mine)),
        same_answer=alone.token_ids == read.token_ids,
        same_boxes=len(alone.boxes) == len(read.boxes),
        margins=tuple(round(float(top[0] - top[1]), 4) for top in (logits.topk(2).values for logits in theirs)),
    )


@cache
def _session(checkpoint: str, device: str, dtype: str) -> Session[KVCache]:
    return Session.from_checkpoint(checkpoint, device=device, dtype=dtype, instrument="off")


def _logits_along(session: Session[KVCache], image: Image.Image, tokens: Sequence[int]) -> list[torch.Tensor]:
    """Give the logits before each of ``tokens``, each of which is fed whatever the session would say."""
    state = session.prefill(session.prepare(image))
    return [state.logits[0].cpu(), *(session.decode_step(state, token)[0].cpu() for token in tokens[:-1])]


def _differences(
    session: Session[KVCache], tokens: Sequence[int], theirs: Sequence[torch.Tensor], mine: Sequence[torch.Tensor]
) -> Iterator[Difference]:
    ban, decode = NgramBan(session.policy.no_repeat_ngram_size, []), session.tokenizer.decode
    for step, (token, exact, rounded) in enumerate(zip(tokens, theirs, mine, strict=True)):
        [choice] = pick(rounded[None], [ban.banned()])
        ban.push(token)
        if choice != token:
            behind, ahead = float(exact[token] - exact[choice]), float(rounded[choice] - rounded[token])
            yield Difference(step, decode([token]), decode([choice]), round(behind, 4), round(ahead, 4))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.training.precision",
        description="What bf16 changes in what a checkpoint says.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--checkpoint", default=MINI, help="a name or a folder")
    parser.add_argument("--subset", default="all", choices=SUBSETS, help="which of the shipped pages")
    parser.add_argument("--device", default="cuda", help="torch's name of it")
    parser.add_argument("--jobs", type=int, default=1, help="pages read at a time, each in a process")
    parser.add_argument("--out", type=Path, default=Path("dsocr-out"), help="where precision.json goes")
    return tell(precision(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
