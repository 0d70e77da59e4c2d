"""``python -m tests.clean_runs [--vendor FOLDER --vendor-env ENV] [NAME ...]``: is any correct run called wrong?

Each run is a process; a case of it is a page, a prompt and a preset, held against the vendor's code. What was found is
kept in ``clean_runs.json`` beside this, and written to ``docs/clean-runs.md``. The status is 1 where one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.files import write_whole
from tests.checkout import CHECKOUT
from tests.clean_runs.runs import RUNS, VENDOR, VENDOR_ENV, CleanRun
from tests.clean_runs.table import Found, table

FOUND = Path(__file__).with_name("clean_runs.json")
PAGE = CHECKOUT / "docs" / "clean-runs.md"


def main(typed: list[str]) -> int:
    """Make the runs named, or all that are possible, and write what is known of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.clean_runs")
    parser.add_argument("names", nargs="*", choices=[*(one.name for one in RUNS), []], metavar="NAME")
    parser.add_argument("--vendor", type=Path, help="folder of the vendor's Python files")
    parser.add_argument("--vendor-env", type=Path, help="environment that they run in")
    asked = parser.parse_args(typed)
    known = {one["name"]: Found(**one) for one in json.loads(FOUND.read_text(encoding="utf-8"))}
    made = []
    for run in RUNS:
        if asked.names and run.name not in asked.names:
            continue
        if run.needs_vendor and not (asked.vendor and asked.vendor_env):
            sys.stdout.write(f"{run.name}: left out, for it needs --vendor and --vendor-env\n")
            continue
        known[run.name] = made_of(run, asked.vendor, asked.vendor_env)
        made.append(known[run.name])
        sys.stdout.write(f"{run.name}: {made[-1].verdict}, {made[-1].cases} cases\n")
        rows = [known[one.name] for one in RUNS if one.name in known]
        write_whole(FOUND, (json.dumps([one.to_json() for one in rows], indent=1) + "\n").encode())
        write_whole(PAGE, table(rows).encode())
    return 0 if made and all(one.passes for one in made) else 1


def made_of(run: CleanRun, vendor: Path | None, vendor_env: Path | None) -> Found:
    """Make a run, and give what its ``dsocr.json`` says."""
    with tempfile.TemporaryDirectory() as out:
        places = {VENDOR: str(vendor), VENDOR_ENV: str(vendor_env)}
        options = [_filled(option, places) for option in run.options]
        python = str(vendor_env / "bin" / "python") if run.as_vendor and vendor_env else sys.executable
        command = [python, "-m", "pytest", *run.suites, "-q", "-p", "no:cacheprovider", f"--dsocr-out={out}"]
        environment = {**os.environ, **run.environment, **_packages(python, run.packages, Path(out, "packages"))}
        with busy(run.busy):
            subprocess.run([*command, *options], cwd=CHECKOUT, env=environment, capture_output=True, check=False)
        told: dict[str, Any] = json.loads(Path(out, "dsocr.json").read_text(encoding="utf-8"))
    errors = [case["worst_error"] or 0.0 for case in told["cases"]]
    return Found(
        run.name,
        passes=told["passes"],
        verdict=told["verdict"],
        tests=told["planned"] - len(told["not_ended"]),
        cases=len(told["cases"]),
        failed=[case["id"] for case in told["cases"] if not case["passes"]],
        counts={verdict: count for verdict, count in told["counts"].items() if count},
        worst_error=max(errors, default=0.0),
    )


def _packages(python: str, wanted: Sequence[str], folder: Path) -> Mapping[str, str]:
    """Install packages without what they need into a folder of their own; give the environment of the run."""
    if not wanted:
        return {}
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", f"--target={folder}", *wanted], check=True)
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


@contextmanager
def busy(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep the machine's cores busy with something else within; give these processes."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


def _filled(option: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        option = option.replace(name, place)
    return option


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
