"""The command line: ``python -m pytest_dsocr run PAGE``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_dsocr.errors import DsocrError


def parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    top = argparse.ArgumentParser(prog="dsocr", description="DeepSeek-OCR, stage by stage.")
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="read one page, print its stages and boxes, draw the boxes",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.add_argument("page", nargs="?", type=Path, help="an image; a page drawn for the purpose if left out")
    run.add_argument(
        "--checkpoint", default="synthetic:tiny", help="a folder, a hub name in the local cache, or synthetic:NAME"
    )
    run.add_argument("--prompt", default="markdown", help="a named prompt, or a text with <image> in it")
    run.add_argument("--preset", default="gundam", help="tiny, small, base, large or gundam")
    run.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    run.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16")
    run.add_argument("--attn", default="eager", help="eager, sdpa or flash_attention_2")
    run.add_argument("--max-new-tokens", type=int, default=128, help="stop after as many tokens")
    run.add_argument("--out", type=Path, default=Path("dsocr-out"), help="folder for the artefacts")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if all went well, 2 on bad input."""
    options = parser().parse_args(arguments)
    from pytest_dsocr.read_page import read_page  # torch is loaded once the options are known to be good

    try:
        for line in read_page(options):
            print(line, flush=True)
    except DsocrError as error:
        print(f"dsocr: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
