"""Run every suite on the correct variants, and count how many of them are called wrong.

    python -m tests.variants --device=cuda --dtype=bfloat16 --checkpoint=mini --checkpoint=synthetic:full --times=3

Results are lines of OUT/runs.jsonl. A run that is there already is not made again, so that an ended command can go on.
"""

import signal
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pytest_dsocr.base.process import cores, interrupted_by_sigterm
from pytest_dsocr.engine.places import split_model, synthetic
from tests.variants.report import markdown
from tests.variants.runs import Job, VariantRun, keep, kept, run_all
from tests.variants.table import VARIANTS, why_not

TOKENS = 48
"""Most tokens of a page whose weights are random, which never end it."""
LARGE_BYTES = 1 << 30
"""Weights that are made once and stored, because each run would need longer to make them than to read them."""
LARGE_JOBS = 3
"""Processes with large weights: each has them on the GPU four to five times, with reference and rounding."""


def arguments(given: Sequence[str] | None = None) -> Namespace:
    """Parse the command's options."""
    parser = ArgumentParser("python -m tests.variants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16 (default: float32)")
    parser.add_argument("--checkpoint", action="append", help="mini, synthetic:full, ... (default: mini)")
    parser.add_argument("--times", type=int, default=1, help="runs of each (default: 1)")
    parser.add_argument("--only", action="append", choices=[*VARIANTS], metavar="NAME", help=", ".join(VARIANTS))
    parser.add_argument("--jobs", type=int, default=max(1, cores() // 2), help="processes (default: half of the cores)")
    large = f"processes with weights above {LARGE_BYTES >> 30} GiB (default: {LARGE_JOBS})"
    parser.add_argument("--large-jobs", type=int, default=LARGE_JOBS, help=large)
    parser.add_argument("--out", type=Path, default=Path("variants-out"), help="results (default: variants-out)")
    parser.add_argument("--weights", type=Path, help="folder for large weights (default: in the temporary folder)")
    parser.add_argument("--seconds", type=float, default=3600, help="end then, with what there is (default: 3600)")
    parser.add_argument("--option", action="append", default=[], help="a further option of dsocr compare")
    options = parser.parse_args(given)
    options.checkpoint = options.checkpoint or ["mini"]
    options.weights = options.weights or Path(tempfile.gettempdir()) / "dsocr-variants"
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Run what is left to run, and print the report; return 1 if a variant was called wrong, or a run was lost."""
    started_s, options = time.monotonic(), arguments(given)
    until_s = started_s + options.seconds
    names = options.only or [*VARIANTS]
    skipped = {name: why for name in names if (why := why_not(VARIANTS[name], options.device))}
    names = [name for name in names if name not in skipped]
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "runs.jsonl"
    device_name = _device_name(options.device)
    asked = {(name, of, number + 1) for name in names for of in options.checkpoint for number in range(options.times)}
    here = device_name, options.dtype
    runs = [run for run in kept(file) if run.is_judged and run.key in asked and (run.device, run.dtype) == here]
    try:
        with interrupted_by_sigterm():
            for checkpoint in options.checkpoint:
                stored = stored_name(checkpoint, options)
                at_once = options.jobs if stored == checkpoint else min(options.jobs, options.large_jobs)
                limit = [f"--max-new-tokens={TOKENS}"] if synthetic(checkpoint) else []
                of_device = checkpoint, options.device, device_name, options.dtype, stored
                jobs = [
                    Job(name, checkpoint, number, *of_device[1:], options=(*limit, *options.option))
                    for number in range(1, options.times + 1)
                    for name in names
                ]
                left = [job for job in jobs if job.key not in {run.key for run in runs}]
                for run in run_all(left, at_once, options.out, until_s):
                    keep(run, file)
                    runs.append(run)
                    _report(run, len(runs), len(asked), time.monotonic() - started_s)
    except KeyboardInterrupt:
        _say("interrupted; this is what there is")
    lines = [*markdown(runs, len(asked), skipped)]
    (options.out / "report.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    sys.stdout.write("\n".join([*lines, ""]))
    return int(len(runs) < len(asked) or any(run.is_false_alarm or not run.is_judged for run in runs))


def stored_name(checkpoint: str, options: Namespace) -> str:
    """Return the name under which a checkpoint is loaded: a folder, written once, where synthetic weights are large."""
    if not (known := synthetic(checkpoint)):
        return checkpoint
    from pytest_dsocr.engine.checkpoint import dtype_named
    from pytest_dsocr.engine.model import weights_bytes

    dtype = dtype_named(options.dtype)
    if weights_bytes(known[0], dtype) < LARGE_BYTES:
        return checkpoint
    folder: Path = options.weights / f"{checkpoint.replace(':', '-')}-{options.dtype}"
    if not (folder / "config.json").is_file():
        from tests.engine.written import write_synthetic

        _say(f"making {checkpoint} in {folder}")
        arch, seed = known
        size = split_model(checkpoint)[1].partition(":")[2].partition("@")[0]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as whole:
            write_synthetic(size, made := Path(whole) / folder.name, dtype, seed, arch.family)
            with suppress(OSError):  # another command made it since
                made.rename(folder)
    return str(folder)


def _device_name(device: str) -> str:
    if device == "cpu":
        return device
    import torch

    return torch.cuda.get_device_name(device)


def _report(run: VariantRun, done: int, planned: int, elapsed_s: float) -> None:
    what = f"{run.variant} {run.checkpoint} {run.time}: {run.ended_as}, {run.seconds['process']:.0f} s"
    _say(f"[{done}/{planned}, {elapsed_s:.0f} s] {what}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have turned off
    sys.exit(main())
