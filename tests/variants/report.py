"""The table of false alarms, and what was called wrong."""

from collections.abc import Iterator, Mapping, Sequence

from tests.variants.runs import VariantRun

NOTHING = "-"


def markdown(runs: Sequence[VariantRun], planned: int, skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the report: a table by variant and checkpoint, then every failure word for word.

    Args:
        runs: those that ended.
        planned: number of runs that were to be made.
        skipped: reason of each variant that this machine cannot run.
    """
    checkpoints = [*dict.fromkeys(run.checkpoint for run in runs)]
    judged = [run for run in runs if run.is_judged]
    alarms = [run for run in judged if run.is_false_alarm]
    where = ", ".join(sorted({f"{run.device}, {run.dtype}" for run in runs})) or NOTHING
    yield f"{len(alarms)} false alarms in {len(judged)} of {planned} runs: {where}"
    yield ""
    yield f"| variant | {' | '.join(checkpoints)} |"
    yield f"| --- |{' --- |' * len(checkpoints)}"
    for name in dict.fromkeys(run.variant for run in runs):
        cells = [_cell([one for one in runs if (one.variant, one.checkpoint) == (name, of)]) for of in checkpoints]
        yield f"| {name} | {' | '.join(cells)} |"
    yield from (f"| {name} | {' | '.join([f'skipped: {why}'] * len(checkpoints))} |" for name, why in skipped.items())
    yield from _failures([run for run in runs if run.ended_as != "passes"])


def _cell(runs: Sequence[VariantRun]) -> str:
    judged = [run for run in runs if run.is_judged]
    lost = len(runs) - len(judged)
    found = f"{sum(run.is_false_alarm for run in judged)} of {len(judged)}" if judged else NOTHING
    return f"{found}, {lost} without a verdict" if lost else found


def _failures(runs: Sequence[VariantRun]) -> Iterator[str]:
    for run in runs:
        yield ""
        yield f"{run.variant}, {run.checkpoint}, run {run.time}: {run.ended_as}: {run.verdict}"
        for test in run.failed:
            yield f"- `{test.test}`"
            yield from (f"    - {line}" for line in test.wrong or [test.why])
