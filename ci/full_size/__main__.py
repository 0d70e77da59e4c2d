"""Hold the session against the vendor's real ``infer`` at full size, and time both in turn.

For a GPU machine and an environment with transformers 4.46 (README, "Against the vendor's code"), from the checkout:

    python -m ci.full_size --vendor DIR --attention eager flash_attention_2 --sweep --out full-size.json

Weights come from a seed and are loaded into both. Every figure goes into the JSON; a summary is printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ci.full_size.case import WARM_UP_RUNS, Study
from ci.full_size.page import demo_page
from ci.full_size.times import step_growth, time_in_turn
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.decoder import inverse_frequencies
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.report.payload import CasePayload, number, of_case
from pytest_dsocr.report.words import counts
from suites.contract.pages import PAGES, write_page

PAGE_PX = 1400
VARIANTS = ("session", "session_without_autocast", "session_with_exact_rope", "vendor_classes_in_session")
TIMINGS = ("times", "times_without_autocast")


def findings(study: Study, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one page: whether the vendor repeats itself, each variant compared, times."""
    seen = [study.observe() for _ in range(1 + WARM_UP_RUNS)]
    theirs, model, autocast = seen[-1], study.model.model, study.on_gpu
    found: dict[str, Any] = {
        "provenance": theirs.provenance and theirs.provenance.to_json(),
        "prompt_tokens": len(theirs.inputs.prompt_ids),
        "vendor_repeats_itself": _content(seen[0]) == _content(theirs),
        "session": of_case(study.compare(theirs, autocast=autocast)),
        "session_without_autocast": of_case(study.compare(theirs, autocast=False)),
        "vendor_classes_in_session": of_case(study.compare(theirs, VendorModel(study.vendor.model), autocast=autocast)),
    }
    rounded = model.inv_freq
    model.inv_freq = inverse_frequencies(study.model.arch.decoder).to(study.model.device)
    found["session_with_exact_rope"] = of_case(study.compare(theirs, autocast=autocast))
    model.inv_freq = rounded
    found["times"] = time_in_turn(study, args.repeats, autocast=autocast)
    found["times_without_autocast"] = time_in_turn(study, args.repeats, autocast=False)
    found["step_growth"] = step_growth(study, args.steps)
    return found


def sweep(study: Study, folder: Path) -> list[CasePayload]:
    """Compare every page of the suites in every preset."""
    found: list[CasePayload] = []
    for page, preset in tqdm([(page, preset) for page in PAGES for preset in PRESETS.values()], desc="sweep"):
        one = replace(study, case=replace(study.case, page=write_page(page, folder), preset=preset))
        found.append(of_case(one.compare(one.observe(), autocast=study.on_gpu), place=len(found)))
    return found


def load(args: argparse.Namespace, attention: str, case: Case) -> Study:
    """Load the vendor's model and the engine's with the same weights."""
    session = Session.from_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype, attention=attention)
    vendor = VendorRuntime.load(
        args.vendor,
        args.checkpoint,
        device=args.device,
        dtype=args.dtype,
        attention=attention,
        command="python -m ci.full_size " + " ".join(sys.argv[1:]),
    )
    assert isinstance(session.model, DeepseekOCR)
    return Study(vendor, session.model, resolve(args.checkpoint).tokenizer, case)


def summary(attention: str, found: dict[str, Any]) -> Iterator[str]:
    """Sum up one attention's findings in a screenful."""
    yield f"\n{attention}: {found['prompt_tokens']} prompt tokens"
    for name in VARIANTS:
        yield f"  {name:<28} {in_words([found[name]])}"
    for timing in TIMINGS:
        ratios = ", ".join(f"{name} {t['session_over_vendor']:.2f}" for name, t in found[timing].items())
        yield f"  {timing:<28} session over vendor: {ratios}"
    yield "  a decode step                early {early_ms:.1f} ms, late {late_ms:.1f} ms".format(**found["step_growth"])
    if "sweep" in found:
        yield f"  sweep of {len(found['sweep']):<19} {in_words(found['sweep'])}"


def in_words(cases: Sequence[CasePayload]) -> str:
    """Sum up the comparisons of some cases in a line."""
    by_verdict: Counter[str] = Counter()
    for case in cases:
        by_verdict.update(case["counts"])
    worst = max(number(case["worst_error"]) for case in cases)
    broken = [f"; {case['id']} breaks at {case['first_wrong']}" for case in cases if case["first_wrong"]]
    return f"{counts(by_verdict)}; worst error {worst:.1e}{''.join(broken[:1])}"


def _content(seen: Observation) -> tuple[object, ...]:
    """Give what tells an observation from another one of the same case."""
    return seen.token_ids, {name: seam.sha256 for name, seam in seen.seams.items()}


def main() -> None:
    """Run the study for each attention and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vendor", type=Path, required=True, help="folder with the vendor's Python files")
    parser.add_argument("--checkpoint", default="synthetic:full")
    parser.add_argument("--attention", nargs="+", default=["eager"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000, help="decode steps of the growth measurement")
    parser.add_argument("--sweep", action="store_true", help="also compare every page of the suites in every preset")
    parser.add_argument("--out", type=Path, default=Path("full-size.json"))
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    report: dict[str, Any] = {"repeats": args.repeats, "page": f"the demo page, {PAGE_PX} x {PAGE_PX} px, gundam"}
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "page.png"
        demo_page(PAGE_PX, PAGE_PX).save(image)
        for attention in args.attention:
            study = load(args, attention, make_case(image, "markdown", "gundam", args.tokens))
            report[attention] = findings(study, args)
            if args.sweep:
                report[attention]["sweep"] = sweep(study, Path(scratch))
            args.out.write_text(json.dumps(report, indent=1))
            print(*summary(attention, report[attention]), sep="\n", flush=True)
    print(f"\nevery figure: {args.out}")


if __name__ == "__main__":
    main()
