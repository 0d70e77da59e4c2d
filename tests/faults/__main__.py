"""``python -m tests.faults``: plant known mistakes, or those of the exam, and write what a default run says of each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.exam import SETS
from tests.faults.matrix import CATALOGUE, faults_of, run


def main(arguments: list[str]) -> int:
    """Do what was asked for; 1 where a mistake survives that a page could show, or is found behind its stage."""
    asked = _parser().parse_args(arguments)
    if asked.what == "calibrate":
        from tests.faults.calibration import calibrate

        sys.stdout.write(f"{calibrate(asked.setting, asked.only)}\n")
        return 0
    source = asked.set if asked.what == "exam" else CATALOGUE
    faults = faults_of(source, tuple(asked.ids))
    outcomes = run(source, faults, asked.out / source, suites=not asked.no_suites, explain=not asked.no_explain)
    good = [one.stage_right if one.killed else bool(faults[one.fault].unseen) for one in outcomes]
    return 0 if all(good) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Known mistakes, planted.")
    kinds = parser.add_subparsers(dest="what", required=True)
    matrix = kinds.add_parser("matrix", help="try those of the catalogue that were seen in a port, or those named")
    matrix.add_argument("ids", nargs="*", metavar="ID", help="a number such as SAM-09, or an id of the catalogue")
    examined = kinds.add_parser("exam", help="try those that the catalogue was not made from")
    examined.add_argument("set", choices=[*SETS])
    examined.add_argument("ids", nargs="*", metavar="ID")
    for one in (matrix, examined):
        one.add_argument("--no-suites", action="store_true", help="leave out the suites beside the pages")
        one.add_argument("--no-explain", action="store_true", help="do not ask what explains a failure")
        one.add_argument("--out", type=Path, default=Path("dsocr-out/faults"), help="the folder of the table")
    calibrated = kinds.add_parser("calibrate", help="measure correct variants against small mistakes")
    calibrated.add_argument("setting", nargs="?", default="cpu-float32", help="cpu-float32 or nvidia-h200-bfloat16")
    calibrated.add_argument("--only", metavar="NAME", help="measure this correct variant here, and write no file")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
