"""The mistakes of two old exams, planted one by one; what a default run says of each is a property of its test.

DSOCR_FAULTS_ON=cuda:bfloat16 python -m pytest tests/exam/oldexam/test_oldexam.py -n 10 -p no:cacheprovider -p no:randomly -q
--junit-xml=oldexam.xml; without the variable on a CPU in float32. PYTHONPATH is the root and tests/exam.

A mistake that survives, or is found in another stage, fails no test: ``outcome`` says so. Only what cannot be planted
or tried does. ``python -m oldexam.table oldexam.xml`` prints the outcomes.

With OLDEXAM_OUT=FILE.jsonl each outcome is a line of this file as soon as it is known, so that a run which is stopped
loses none, and mistakes that have a line are not tried again; ``oldexam.table`` reads such a file too.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

os.environ.setdefault("DSOCR_KEPT_ANSWERS", "off")
from oldexam import SETS, exam  # noqa: E402
from pytest_dsocr.explain.explainer import Explainer  # noqa: E402
from tests.faults.outcome import Fault  # noqa: E402
from tests.faults.trial import BUDGET_S, SETUP, try_fault  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:record_property is incompatible with junit_family")
OUT = Path(os.environ["OLDEXAM_OUT"]) if "OLDEXAM_OUT" in os.environ else None
KNOWN = {json.loads(line)["id"] for line in OUT.read_text().splitlines()} if OUT and OUT.exists() else set[str]()
EXAM = {name: one for part in SETS for name, one in exam(part).items()}


def of_exam() -> Mapping[str, Fault]:
    """Return the mistakes of both exams."""
    return {name: Fault(one.stage, f"oldexam.subject:{name.replace('-', '_')}", one.put) for name, one in EXAM.items()}


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    """Explaining process, without a mistake."""
    made = Explainer(SETUP, BUDGET_S)
    yield made
    made.close()


@pytest.mark.parametrize(("name", "fault"), of_exam().items(), ids=of_exam())
def test_a_mistake_of_an_old_exam(
    name: str, fault: Fault, explainer: Explainer, record_property: Callable[[str, object], None]
) -> None:
    if name in KNOWN:
        pytest.skip("has a line in OLDEXAM_OUT")
    one, started = EXAM[name], time.perf_counter()
    said = {what: getattr(one, what) for what in ("id", "title", "stage", "page", "unseen", "cause")}
    found = try_fault(fault, explainer, suites=True)
    said["outcome"] = (
        "survives" if found is None else "found in its stage" if found.stage_right else "found in another stage"
    )
    said |= {**(asdict(found) if found else {}), "seconds": round(time.perf_counter() - started, 1)}
    for what, value in said.items():
        record_property(what, value)
    if OUT:
        with OUT.open("a") as file:
            file.write(json.dumps(said, default=str) + "\n")
