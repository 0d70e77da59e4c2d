"""``python -m tests.faults``: the matrix of mistakes, a list of them, and what one of them looks like.

It is no command of ``dsocr``, for the wheel's engine holds no mistake and no way to plant one.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.faults.all import FAULTS, HALVES
from tests.faults.matrix import run_matrix


def main(typed: list[str]) -> int:
    """Do what was asked for; 1 where a mistake survives that a page could show, or is found behind its stage."""
    asked = _parser().parse_args(typed)
    if asked.what == "list":
        sys.stdout.writelines(f"{one.id:<9} {one.stage:<14} {one.title}: {one.cause}\n" for one in FAULTS.values())
        return 0
    if asked.what == "show":
        from tests.faults.show import show

        return show(asked.id, asked.page, asked.out)
    if asked.what == "gallery":
        from tests.faults.gallery import make_gallery

        sys.stdout.write(f"{make_gallery(asked.ids or list(FAULTS), asked.page, asked.out)}\n")
        return 0
    if asked.what == "held-out":
        from tests.faults.halves import try_half

        sys.stdout.write(f"{try_half(asked.half, asked.out)}\n")
        return 0
    if asked.what == "calibrate":
        from tests.faults.calibration import SETTINGS, calibrate, measure

        if asked.only:
            sys.stdout.write(json.dumps(asdict(measure(SETTINGS[asked.setting], asked.only))))
            return 0
        sys.stdout.write(f"{calibrate(asked.setting)}\n")
        return 0
    if asked.what == "explain":
        from tests.faults.explaining import run_explained

        return 0 if run_explained(asked.ids) else 1
    outcomes = run_matrix(asked.ids, suites=not asked.pages_only)
    good = [one.stage_right if one.killed else bool(FAULTS[one.fault].unseen) for one in outcomes]
    return 0 if all(good) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Known mistakes, planted.")
    kinds = parser.add_subparsers(dest="what", required=True)
    matrix = kinds.add_parser("matrix", help="try them all, or those named, and write what is found of each")
    matrix.add_argument("ids", nargs="*", choices=[*FAULTS, []], metavar="ID")
    matrix.add_argument("--pages-only", action="store_true", help="leave out the suites beside the pages")
    explained = kinds.add_parser("explain", help="ask of those that pages show, or of those named, what explains them")
    explained.add_argument("ids", nargs="*", choices=[*FAULTS, []], metavar="ID")
    calibrated = kinds.add_parser("calibrate", help="measure correct variants against small mistakes, and draw them")
    calibrated.add_argument(
        "setting",
        nargs="?",
        default="cpu-float32",
        help="cpu-float32, nvidia-h200-bfloat16 or nvidia-h200-bfloat16-full",
    )
    calibrated.add_argument("--only", metavar="NAME", help="measure this correct variant here, and write no file")
    held_out = kinds.add_parser(
        "held-out", help="try a half of the held-out set, and write a table for a person to judge"
    )
    held_out.add_argument("half", choices=list(HALVES))
    held_out.add_argument("--out", type=Path, default=Path("dsocr-out/held-out"), help="the folder of the table")
    kinds.add_parser("list", help="list them")
    shown = kinds.add_parser("show", help="show what a mistake looks like on a page: report, hint and picture")
    shown.add_argument("id", choices=list(FAULTS), metavar="ID")
    shown.add_argument("page", type=Path, nargs="?", help="an image; one of the shipped pages if left out")
    shown.add_argument("--out", type=Path, default=Path("dsocr-out"), help="the folder of the report")
    gallery = kinds.add_parser("gallery", help="make a page of all of them")
    gallery.add_argument("ids", nargs="*", choices=[*FAULTS, []], metavar="ID")
    gallery.add_argument("--page", default="receipt_086", help="the name of the shipped page, receipt_086 if left out")
    gallery.add_argument("--out", type=Path, default=Path("dsocr-out/gallery"), help="the folder of the page")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
