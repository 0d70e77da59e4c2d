"""Hold the session against the vendor's real ``infer`` at full size, and time both in turn.

For a GPU machine and an environment with transformers 4.46 (README, "Against the vendor's code"):

    python ci/full_size.py --vendor DIR --attn eager flash_attention_2 --out full-size.json

Weights come from a seed and are loaded into both. Every figure goes into the JSON; a summary is printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import get_preset
from pytest_dsocr.demo import demo_page
from pytest_dsocr.engine.attention import attention_function
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.engine.decoder import inverse_frequencies
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.engine.result import Result
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Instrument
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.vendor.code import build_vendor_model, load_vendor_code
from pytest_dsocr.vendor.observe import InferTokenizer, VendorRun, observe_infer

PROMPT = "<image>\n<|grounding|>Convert the document to markdown. "
PRESET = get_preset("gundam")
PAGE_PX = 1400
VARIANTS = ("session", "session_without_autocast", "session_with_exact_rope", "vendor_classes_in_session")
TIMINGS = ("times", "times_without_autocast")


@dataclass
class Case:
    """One page on disk, and what both sides need to read it."""

    checkpoint: Checkpoint
    image: Path
    tokens: int
    folder: Path

    def observe(self, vendor: Any, *, keep_tensors: bool = True) -> VendorRun:
        """Run the vendor's ``infer``."""
        return observe_infer(
            vendor,
            InferTokenizer(self.checkpoint.tokenizer),
            self.image,
            self.folder,
            prompt=PROMPT,
            preset=PRESET,
            max_new_tokens=self.tokens,
            keep_tensors=keep_tensors,
            save_results=True,
        )

    def session(self, model: Any, *, autocast: bool, instrument: Instrument = "off") -> Session[Any]:
        """Put a session around ``model`` that stops where the vendor's run does."""
        policy = DecodePolicy(self.checkpoint.tokenizer.special.eos, max_new_tokens=self.tokens)
        return Session(model, self.checkpoint.tokenizer, policy=policy, instrument=instrument, autocast=autocast)


def compare(case: Case, run: VendorRun, model: Any, *, autocast: bool) -> dict[str, Any]:
    """Compare a session's seams, teacher-forced logits and own tokens with one run of the vendor's."""
    session = case.session(model, autocast=autocast)
    inputs = session.prepare(case.image, prompt=PROMPT, preset=PRESET)
    state = session.prefill(inputs)
    seams = seam_errors(state, run)
    logits = torch.stack(run.step_logits)
    forced = [state.logits[0], *(session.decode_step(state, token)[0] for token in run.token_ids[:-1])]
    mine = torch.stack(forced)
    own = list(session.run_prepared(inputs).token_ids)
    agree = (mine.argmax(-1) == logits.argmax(-1)).sum().item()
    return {
        "seam_relative_error": seams,
        "prefill_logits_relative_error": relative(mine[0], logits[0]),
        "forced_logits_relative_error_max": max(map(relative, mine, logits)),
        "top1_agreement": f"{agree}/{len(mine)}",
        "disagreements": [margin_at(k, mine, logits) for k in range(len(mine)) if differs(k, mine, logits)],
        "own_tokens_first_difference": first_difference(own, run.token_ids),
    }


def seam_errors(state: DecodeState[Any], run: VendorRun) -> dict[str, float]:
    """Relative error of each vision seam; the vendor's first runs are the crops', its last the page's."""
    vision = state.visions[0]
    errors = {}
    for name, seen in (("sam", run.sam), ("clip", run.clip), ("projector", run.projector)):
        if vision.crops is not None:
            errors[f"{name}.crops"] = relative(getattr(vision.crops, name), seen[0])
        errors[f"{name}.page"] = relative(getattr(vision.page, name), seen[-1])
    embeds, mask = run.prompt_embeds, run.generate_kwargs["images_seq_mask"]
    assert embeds is not None
    errors["vision_fusion"] = relative(vision.vision_fusion, embeds[mask])
    return errors


def relative(mine: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over the norm of the reference, in float64."""
    a, b = mine.double(), theirs.double()
    return float((a - b).norm() / b.norm())


def differs(k: int, mine: Tensor, theirs: Tensor) -> bool:
    """Whether the best tokens of step ``k`` differ."""
    return bool(mine[k].argmax() != theirs[k].argmax())


def margin_at(k: int, mine: Tensor, theirs: Tensor) -> dict[str, float]:
    """Say how far apart the reference's best two were where the best tokens differ, in bf16 steps of the best."""
    top = theirs[k].topk(2).values
    ulp = 2.0 ** (torch.frexp(top[0].abs().float()).exponent.item() - 8)
    error = float((mine[k] - theirs[k]).abs().max())
    return {"step": k, "margin": float(top[0] - top[1]), "bf16_ulp": ulp, "largest_logit_error": error}


def first_difference(mine: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Give the first index at which two token lists part, or None."""
    for index, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return index
    return None if len(mine) == len(theirs) else min(len(mine), len(theirs))


def time_in_turn(case: Case, vendor: Any, model: Any, repeats: int, *, autocast: bool) -> dict[str, Any]:
    """Alternate ``infer`` and the session on one page; medians in milliseconds, and their ratio."""
    session = case.session(model, autocast=autocast, instrument="timed")
    theirs, ours = [], []
    for turn in range(repeats + 2):
        run = case.observe(vendor, keep_tensors=False)
        result = session.run(case.image, prompt=PROMPT, preset=PRESET)
        if turn >= 2:  # the first two warm up: the vendor's scripted activation is compiled in them
            theirs.append(vendor_stages(run))
            ours.append(session_stages(result))
    medians = [{name: statistics.median(t[name] for t in turns) for name in theirs[0]} for turns in (theirs, ours)]
    return {
        name: {
            "vendor_ms": medians[0][name],
            "session_ms": medians[1][name],
            "session_over_vendor": medians[1][name] / medians[0][name],
        }
        for name in medians[0]
    }


def session_stages(result: Result) -> dict[str, float]:
    """Give the session's times, fusion in the prefill as it is in the vendor's."""
    total_ms: dict[str, float] = {stage: times.total_ms for stage, times in result.stage_times.items()}
    decode_ms = total_ms.pop("decode") / result.counts.decode_steps
    return {**total_ms, "prefill": total_ms["prefill"] + total_ms["vision_fusion"], "decode_per_token": decode_ms}


def vendor_stages(run: VendorRun) -> dict[str, float]:
    """Name the vendor's times as the session's; its prefill holds fusion and the language model."""
    encoders = sum(run.stage_ms.values())
    return {
        "tokenizer": run.prepare_ms,
        **run.stage_ms,
        "prefill": run.forward_ms[0] - encoders,
        "decode_per_token": statistics.mean(run.forward_ms[1:]),
    }


def step_growth(case: Case, model: Any, steps: int) -> dict[str, float]:
    """Time single decode steps early and late in one output: a step's cost must not grow with its index."""
    session = case.session(model, autocast=model.device.type == "cuda", instrument="timed")
    state = session.prefill(session.prepare(case.image, prompt=PROMPT, preset=PRESET))
    session.stages.clear()
    for _ in range(steps):
        session.decode_step(state, 100)
    runs_ms = session.stages.times()["decode"].runs_ms
    tenth = steps // 10
    return {"early_ms": statistics.median(runs_ms[tenth : 2 * tenth]), "late_ms": statistics.median(runs_ms[-tenth:])}


def build_both(checkpoint: Checkpoint, folder: Path, attn: str, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Build the engine's model and the vendor's with the same weights, the vendor's cast as its card says."""
    arch = checkpoint.architecture
    model = DeepseekOCR.empty(arch, attention_function(attn), torch.device(device), dtype)
    checkpoint.load_into(model)
    with torch.device(device):
        vendor = build_vendor_model(load_vendor_code(folder), arch, attn)
    vendor = vendor.to(dtype)
    missing, surplus = vendor.load_state_dict(model.state_dict(), strict=False)
    assert (missing, surplus) == (["model.vision_model.embeddings.position_ids"], []), (missing, surplus)
    if device != "cpu":
        model.stack_experts()
    return model, vendor


def study(case: Case, model: Any, vendor: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one attention: repeatability, parity of each variant, times."""
    gpu = model.device.type == "cuda"
    run = case.observe(vendor)
    for _ in range(2):
        again = case.observe(vendor)
    rounded = model.model.inv_freq
    found: dict[str, Any] = {
        "prompt_tokens": run.generate_kwargs["input_ids"].shape[1],
        "vendor_again_clip_relative_error": relative(again.clip[-1], run.clip[-1]),
        "vendor_again_first_difference": first_difference(again.token_ids, run.token_ids),
        "session": compare(case, again, model, autocast=gpu),
        "session_without_autocast": compare(case, again, model, autocast=False),
        "vendor_classes_in_session": compare(case, again, VendorModel(vendor), autocast=gpu),
    }
    model.model.inv_freq = exact_frequencies(model)
    found["session_with_exact_rope"] = compare(case, again, model, autocast=gpu)
    model.model.inv_freq = rounded
    found["times"] = time_in_turn(case, vendor, model, args.repeats, autocast=gpu)
    found["times_without_autocast"] = time_in_turn(case, vendor, model, args.repeats, autocast=False)
    found["step_growth"] = step_growth(case, model, args.steps)
    return found


def exact_frequencies(model: DeepseekOCR) -> Tensor:
    """Give the rotary frequencies that the cast to bf16 has not rounded."""
    return inverse_frequencies(model.arch.decoder).to(model.device)


def provenance(args: argparse.Namespace) -> dict[str, Any]:
    """Say what was measured, on what, with which code."""
    return {
        "vendor_sha256": load_vendor_code(args.vendor).sha256,
        "checkpoint": args.checkpoint,
        "page": f"the demo page, {PAGE_PX} x {PAGE_PX} px",
        "preset": PRESET.name,
        "device": torch.cuda.get_device_name() if args.device != "cpu" else platform.processor(),
        "dtype": args.dtype,
        "overrides": [f"generate: max_new_tokens {args.tokens} in place of 8192"],
        "repeats": args.repeats,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers", "pillow", "numpy")},
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python ci/full_size.py " + " ".join(sys.argv[1:]),
    }


def summary(attn: str, found: dict[str, Any]) -> Iterator[str]:
    """Tell one attention's findings in a screenful."""
    yield f"\n{attn}: {found['prompt_tokens']} prompt tokens"
    for name in VARIANTS:
        variant = found[name]
        worst = max(variant["seam_relative_error"].items(), key=lambda item: item[1])
        yield (
            f"  {name:<28} worst seam {worst[0]} {worst[1]:.1e}, "
            f"logits {variant['forced_logits_relative_error_max']:.1e}, "
            f"top-1 {variant['top1_agreement']}, tokens part at {variant['own_tokens_first_difference']}"
        )
    for timing in TIMINGS:
        ratios = ", ".join(f"{name} {t['session_over_vendor']:.2f}" for name, t in found[timing].items())
        yield f"  {timing:<28} session over vendor: {ratios}"
    yield "  a decode step                early {early_ms:.1f} ms, late {late_ms:.1f} ms".format(**found["step_growth"])


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
    parser.add_argument("--out", type=Path, default=Path("full-size.json"))
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    checkpoint = resolve(args.checkpoint)
    report: dict[str, Any] = {"provenance": provenance(args)}
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "page.png"
        demo_page(PAGE_PX, PAGE_PX).save(image)
        case = Case(checkpoint, image, args.tokens, Path(scratch) / "out")
        for attn in args.attn:
            pair = build_both(checkpoint, args.vendor, attn, args.device, getattr(torch, args.dtype))
            report[attn] = study(case, *pair, args)
            args.out.write_text(json.dumps(report, indent=1))
            print(*summary(attn, report[attn]), sep="\n", flush=True)
    print(f"\nevery figure: {args.out}")


if __name__ == "__main__":
    main()
