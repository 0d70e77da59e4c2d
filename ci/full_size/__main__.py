"""Hold the session against the vendor's real ``infer`` at full size, and time both in turn.

For a GPU machine and an environment with transformers 4.46 (README, "Against the vendor's code"), from the checkout:

    python -m ci.full_size --vendor DIR --attn eager flash_attention_2 --sweep --out full-size.json

Weights come from a seed and are loaded into both. Every figure goes into the JSON; a summary is printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ci.full_size.case import WARM_UP_RUNS, Study, build_both
from ci.full_size.page import demo_page
from ci.full_size.parity import compare
from ci.full_size.times import step_growth, time_in_turn
from pytest_dsocr.contract.policy import VENDOR_MAX_NEW_TOKENS
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.decoder import inverse_frequencies
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.provenance import device_class, versions
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from suites.contract.pages import PAGES, write_page

PAGE_PX = 1400
VARIANTS = ("session", "session_without_autocast", "session_with_exact_rope", "vendor_classes_in_session")
TIMINGS = ("times", "times_without_autocast")


def study(case: Study, model: Any, vendor: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one page: whether the vendor repeats itself, parity of each variant, times."""
    gpu = model.device.type == "cuda"
    run = case.observe(vendor)
    for _ in range(WARM_UP_RUNS):
        again = case.observe(vendor)
    found: dict[str, Any] = {
        "prompt_tokens": run.generate_kwargs["input_ids"].shape[1],
        "vendor_repeats_itself": again.token_ids == run.token_ids and torch.equal(again.clip[-1], run.clip[-1]),
        "session": compare(case, again, model, autocast=gpu),
        "session_without_autocast": compare(case, again, model, autocast=False),
        "vendor_classes_in_session": compare(case, again, VendorModel(vendor), autocast=gpu),
    }
    rounded = model.model.inv_freq
    model.model.inv_freq = exact_frequencies(model)
    found["session_with_exact_rope"] = compare(case, again, model, autocast=gpu)
    model.model.inv_freq = rounded
    found["times"] = time_in_turn(case, vendor, model, args.repeats, autocast=gpu)
    found["times_without_autocast"] = time_in_turn(case, vendor, model, args.repeats, autocast=False)
    found["step_growth"] = step_growth(case, model, args.steps)
    return found


def sweep(case: Study, model: Any, vendor: Any) -> list[dict[str, Any]]:
    """Compare every page of the suites in every preset."""
    gpu = model.device.type == "cuda"
    found = []
    cases = [(page, preset) for page in PAGES for preset in PRESETS.values()]
    for page, preset in tqdm(cases, desc="sweep", unit="case"):
        one = replace(case, case=replace(case.case, page=write_page(page, case.folder), preset=preset))
        run = one.observe(vendor)
        compared = compare(one, run, model, autocast=gpu)
        found.append({"page": page, "preset": preset.name, "distinct_tokens": len(set(run.token_ids)), **compared})
    return found


def exact_frequencies(model: DeepseekOCR) -> Tensor:
    """Give the rotary frequencies that the cast to bf16 has not rounded."""
    return inverse_frequencies(model.arch.decoder).to(model.device)


def provenance(code: VendorCode, args: argparse.Namespace) -> dict[str, Any]:
    """Say what was measured, on what, with which code."""
    return {
        "vendor_sha256": code.sha256,
        "checkpoint": args.checkpoint,
        "page": f"the demo page, {PAGE_PX} x {PAGE_PX} px, gundam; the sweep: the suites' pages in every preset",
        "device": device_class(args.device),
        "dtype": args.dtype,
        "overrides": [*code.overrides, f"generate: max_new_tokens {args.tokens} in place of {VENDOR_MAX_NEW_TOKENS}"],
        "repeats": args.repeats,
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m ci.full_size " + " ".join(sys.argv[1:]),
    }


def summary(attn: str, found: dict[str, Any]) -> Iterator[str]:
    """Tell one attention's findings in a screenful."""
    yield f"\n{attn}: {found['prompt_tokens']} prompt tokens"
    for name in VARIANTS:
        yield f"  {name:<28} {told([found[name]])}"
    for timing in TIMINGS:
        ratios = ", ".join(f"{name} {t['session_over_vendor']:.2f}" for name, t in found[timing].items())
        yield f"  {timing:<28} session over vendor: {ratios}"
    yield "  a decode step                early {early_ms:.1f} ms, late {late_ms:.1f} ms".format(**found["step_growth"])
    if "sweep" in found:
        yield f"  sweep of {len(found['sweep']):<19} {told(found['sweep'])}"


def told(compared: list[dict[str, Any]]) -> str:
    """Tell the worst of some comparisons in a line."""
    seam = max(error for one in compared for error in one["seam_relative_error"].values())
    logits = max(one["forced_logits_relative_error_max"] for one in compared)
    agreed, steps = (sum(one["top1_agreement"][i] for one in compared) for i in range(2))
    parted = [one["tokens_part_at"] for one in compared if one["tokens_part_at"] is not None]
    ends = f"tokens part in {len(parted)}, first at {min(parted)}" if parted else "tokens equal"
    return f"worst seam {seam:.1e}, worst logits {logits:.1e}, top-1 {agreed}/{steps}, {ends}"


def main() -> None:
    """Run the study for each attention and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vendor", type=Path, required=True, help="folder with the vendor's Python files")
    parser.add_argument("--checkpoint", default="synthetic:full")
    parser.add_argument("--attn", nargs="+", default=["eager"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000, help="decode steps of the growth measurement")
    parser.add_argument("--sweep", action="store_true", help="also compare every page of the suites in every preset")
    parser.add_argument("--out", type=Path, default=Path("full-size.json"))
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    checkpoint, code = resolve(args.checkpoint), load_vendor_code(args.vendor)
    report: dict[str, Any] = {"provenance": provenance(code, args)}
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "page.png"
        demo_page(PAGE_PX, PAGE_PX).save(image)
        case = Study(checkpoint, make_case(image, "markdown", "gundam", args.tokens), Path(scratch))
        for attn in args.attn:
            pair = build_both(checkpoint, code, attn, args.device, args.dtype)
            report[attn] = study(case, *pair, args)
            if args.sweep:
                report[attn]["sweep"] = sweep(case, *pair)
            args.out.write_text(json.dumps(report, indent=1))
            print(*summary(attn, report[attn]), sep="\n", flush=True)
    print(f"\nevery figure: {args.out}")


if __name__ == "__main__":
    main()
