"""Times of one run: measured, judged against this machine's baseline, or accepted as its new baseline."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.process import commit_here
from pytest_dsocr.base.words import HASH_CHARACTERS
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.roofline import Roof, device_of_gpu
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.plugin.config import command_of, typed_options
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.reference.goldens import baseline_places, check_writable
from pytest_dsocr.report.words import rerun
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.timing.baseline import (
    Baseline,
    NoBaselineError,
    check_right,
    check_rounds,
    differing,
    find,
    find_counts,
    has_any,
)
from pytest_dsocr.timing.counts import changed_conditions, exactly
from pytest_dsocr.timing.identity import PageSetting
from pytest_dsocr.timing.identity import identity_of as measured_identity
from pytest_dsocr.timing.limits import ALONE, LOOKS, Watcher
from pytest_dsocr.timing.probe.page import PageProbe
from pytest_dsocr.timing.rounds import Measured
from pytest_dsocr.timing.run import PerfRun, measure
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict, judge
from pytest_dsocr.timing.summary import of_judgement, roof_over

BASELINE_ROUNDS = LOOKS[1]
"""Rounds of a baseline: more than those of a run, because every later run relies on them."""


def perf_run(
    request: pytest.FixtureRequest,
    config: Config,
    case: Case,
    probe: PageProbe,
    counts: Measured,
    slower: Mapping[str, float],
    on_round: Watcher,
) -> PerfRun:
    """Measure ``probe``'s page and judge it, or write it as the baseline with ``--dsocr-baseline-update``.

    Before times are kept, here or by pytest-benchmark, the answer is compared with the reference: a wrong answer may
    be fast.

    Raises:
        NoBaselineError: if this machine has baselines but none for this run, or if this run may not become one.
    """
    folders = baseline_places(config.golden)
    parity: dict[str, Any] = {}
    if config.baseline_update:
        check_writable(folders[0], "--dsocr-golden=FOLDER")
    before = PerfRun(counts) if config.baseline_update else against(config, counts)
    saving = ("benchmark_save", "benchmark_autosave", "benchmark_compare")
    is_kept = handed_over(request.config) and any(getattr(request.config.option, name) for name in saving)
    if config.baseline_update or (before.baseline is None and is_kept):
        check_right(parity := _parity(request, config, case))
    alone = BASELINE_ROUNDS if parity else ALONE
    try:
        measured, judgements = measure(
            probe, counts, before.baseline, slower, most_rounds=config.max_rounds, rounds_alone=alone, on_round=on_round
        )
    finally:
        gc.unfreeze()  # what the probe froze as it began
    roof = roof_of(measured, config.checkpoint, case.page)
    run = replace(before, measured=measured, judgements=judgements, roof=roof)
    if config.baseline_update:
        return _accepted(request.config, run, parity, folders[0])
    why = f"pytest-benchmark keeps the times; what it reads: {parity.get('verdict')}; {before.no_baseline}"
    return replace(run, is_kept=True, no_baseline=why) if parity else run


def handed_over(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark can receive the rounds."""
    if not config.pluginmanager.has_plugin("benchmark"):
        return False
    return not (config.option.benchmark_disable or config.option.benchmark_skip)


def identity_of(config: Config, case: Case) -> dict[str, Any]:
    """Return the identity of a run: everything that it shares with its baseline, and the commit."""
    import torch

    from pytest_dsocr.engine.checkpoint import resolve
    from pytest_dsocr.timing.probe.machine import machine, versions

    setup = {
        "checkpoint": config.checkpoint,
        "checkpoint_sha256": resolve(config.checkpoint).sha256,
        "dtype": config.dtype,
        "attention": config.attention,
        "threads": torch.get_num_threads(),
    }
    page = PageSetting(case.page.stem, case.page_sha256, case.prompt, case.preset.name, case.max_new_tokens)
    where = {"commit": commit_here() or "", "machine": machine(config.device), "versions": versions()}
    return measured_identity(config.subject, setup, page, name=config.subject, **where)


def roof_of(measured: Measured, checkpoint: str, page: Path) -> Roof | None:
    """Return the roof over a page's times, if the peaks of this machine's GPU are known.

    Its dimensions are the checkpoint's, even if the subject uses others.
    """
    device = device_of_gpu(measured.identity["machine"].get("gpu", ""))
    return roof_over(measured, architecture_of(checkpoint), load_image(page).size, device) if device else None


def against(config: Config, counts: Measured) -> PerfRun:
    """Return a run before its times, with its baseline or with the counts of another host's baseline.

    Raises:
        NoBaselineError: if this host has baselines, but none for this run.
    """
    folders, identity = baseline_places(config.golden), counts.identity
    try:
        return PerfRun(counts, baseline=find(folders, identity, config.baseline_days))
    except NoBaselineError as error:
        if "baseline" not in config.allow_missing and has_any(folders, identity["machine"]):
            raise
        return PerfRun(counts, no_baseline=str(error), counts=find_counts(folders, identity))


def _accepted(config: pytest.Config, run: PerfRun, parity: Mapping[str, Any], folder: Path) -> PerfRun:
    check_rounds(run.measured)
    how: Any = {"command": command_of(config), "commit": commit_here()}
    path = Baseline(**vars(run.measured), parity=parity, made=date.today(), **how).write(folder)
    message = f"accepted as the baseline: {path}, {len(run.measured.good)} rounds; what it reads: {parity['verdict']}"
    current().note(message)
    return replace(run, accepted=path, no_baseline=message)


def _parity(request: pytest.FixtureRequest, config: Config, case: Case) -> dict[str, Any]:
    """Compare the subject's answer with the reference, because a wrong answer may be fast."""
    from pytest_dsocr.report.words import counts
    from pytest_dsocr.run.limits import limits_of
    from pytest_dsocr.run.sides import compare_sides

    subject, reference = request.getfixturevalue("dsocr_subject"), request.getfixturevalue("dsocr_reference")
    whole = replace(case, max_new_tokens=config.max_new_tokens or case.family.decoding.max_new_tokens)
    resources = request.getfixturevalue("_dsocr_resources")
    limits = limits_of(config, subject, reference, resources.key)
    report = compare_sides(whole, subject, reference, resources, limits, always_read=True)
    return {
        "passes": report.passes,
        "verdict": counts({str(name): number for name, number in report.counts.items()}),
        "comparisons": sum(report.counts.values()),
        "case": whole.id,
        "reference": reference.provenance.to_json(),
    }


PROFILE = "nsys profile --trace=cuda,nvtx"
"""Command that profiles a slower stage. Stages are NVTX ranges."""
CLOCKS = ("sm_mhz", "memory_mhz", "cpu_mhz")
GROWTH = 0.05
"""Allowed slowdown of late steps, in addition to the cost of their longer context."""


def comparison_of(run: PerfRun, quantity: str, test: pytest.Item) -> Comparison:
    """Return a quantity's judgement as a comparison. An undecided one is NOT-COMPARED."""
    found = run.judgement(quantity)
    if found is None:
        what = ComparisonKind.TIME.name_of(quantity)
        return not_compared(what, Reason.NOT_IN_REFERENCE, f"{quantity} is not in the baseline; accept it anew")
    return _compared(found, tuple(_details(run, test)) if found.pace is TimingVerdict.SLOWER else ())


def exact_comparisons(run: PerfRun) -> Iterator[Comparison]:
    """Compare the exact quantities with the baseline's. Less for the same work is as good as equal.

    With another host's baseline, leave out quantities that are only nearly equal, such as the time of GPU work.
    """
    before, exact, known = run.baseline, run.measured.exact, "the baseline has"
    if run.counts:
        before, exact = run.counts, exactly(exact)
        apart = differing(before, run.measured.identity)
        known = f"the counts of {before.made}, which hold here too ({apart}), have"
    assert before is not None
    worse = {one.quantity: one for one in run.changes if one.is_work or one.is_worse}
    for name, value in exact.items():
        if name in worse:
            yield Comparison(ComparisonKind.TIME.name_of(name), Verdict.WRONG, f"{value}; {known} {worse[name].before}")
        elif name in before.exact:
            yield Comparison(ComparisonKind.TIME.name_of(name), Verdict.MATCH, str(value))


def growth(measured: Measured) -> Comparison:
    """Compare late decode steps with early ones of the same rounds."""
    start, tokens = measured.exact["tokens.prompt"], measured.exact["tokens.output"]
    allowed = (start + tokens) / start - 1 + GROWTH
    times = measured.wall_ms("decode.early"), measured.wall_ms("decode.late")
    [found] = judge({"decode growth": times}, {"decode growth": allowed}, paired=True)
    return _compared(found, (), "an early step")


def _compared(found: Judgement, details: tuple[str, ...], other: str = "the baseline") -> Comparison:
    what = ComparisonKind.TIME.name_of(found.quantity)
    if found.pace in (TimingVerdict.AMBIGUOUS, TimingVerdict.NOT_COMPARED):
        return not_compared(what, Reason.TELLS_NOTHING, of_judgement(found, other))
    verdict = Verdict.WRONG if found.pace is TimingVerdict.SLOWER else Verdict.MATCH
    return Comparison(what, verdict, of_judgement(found, other), details=details)


def _details(run: PerfRun, test: pytest.Item) -> Iterator[str]:
    """List the other changes and the commands to type next."""
    assert run.baseline is not None
    yield f"what else changed: {'; '.join(_changed(run)) or 'no count and no clock'}"
    commit = (run.baseline.commit or "unknown")[:HASH_CHARACTERS]
    yield f"the baseline is of {run.baseline.made}, commit {commit}"
    again = rerun(test.nodeid, typed_options(test.config), test.config.rootpath)
    yield f"accept: {again} --dsocr-baseline-update"
    yield f"profile: {PROFILE} python -m {again}"


def _changed(run: PerfRun) -> Iterator[str]:
    """List the counts and clocks that differ from the baseline's."""
    assert run.baseline is not None
    yield from (f"{one.quantity} {one.before} -> {one.after}" for one in run.changes)
    for name, was, now in changed_conditions(run.baseline, run.measured):
        if name in CLOCKS:
            yield f"{name} {was:.0f} -> {now:.0f}"
