"""References of the tests' own: the engine in the vendor's place, and observations given again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.mmd import to_mmd
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import (
    BEST_OF_PREFILL,
    Artefact,
    Best,
    InputsDigest,
    Observation,
    Output,
    Seam,
    SpanSeen,
    Step,
)
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.recorded.recorder import recorder
from pytest_dsocr.reference.recorded.recording import Recording
from suites.contract.pages import write_page
from tests.crops import CROPS

NEW_TOKENS = 6
CASES = (("tiny", "free", PRESETS["tiny"]), ("square", "markdown", CROPS), ("landscape", "markdown", PRESETS["small"]))
MADE = Provenance(
    checkpoint="synthetic:tiny",
    checkpoint_sha256="c0" * 32,
    vendor_sha256={"modeling_deepseekocr.py": "1a" * 32, "deepencoder.py": "2b" * 32},
    device="cpu",
    dtype="float32",
    attention="eager",
    resampling=resampling(),
    versions={"python": "3.12.1", "torch": "2.13.0", "pillow": "13.0.0"},
    overrides=("image token: id 271 in place of 128815", "Tensor.cuda: stays on the CPU"),
    date="2026-01-02",
    command="dsocr vendor record vendor pages",
)


def make_cases(folder: Path) -> list[Case]:
    """Three pages in three presets, of which one has crops."""
    return [Case(write_page(page, folder), PROMPTS[prompt], preset, NEW_TOKENS) for page, prompt, preset in CASES]


def observe(session: Session[Any], case: Case) -> Observation:
    """Read a page with the engine, and see of it what is seen of the vendor's code."""
    inputs = session.prepare(case.page, prompt=case.prompt, preset=case.preset)
    state = session.prefill(inputs)
    seams = {name: tensor for vision in state.visions for name, tensor in vision.seams.items()}
    prefill = state.logits[0]
    steps = tuple(_steps(session, state, case.max_new_tokens))
    text = session.tokenizer.decode([step.token for step in steps]).strip()
    spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text).spans)
    mmd = to_mmd(text)
    return Observation(
        case_id=case.id,
        inputs=InputsDigest.of(inputs.tensors, keep_values=True),
        seams={name: Seam.of(tensor, keep_values=True) for name, tensor in {**seams, "prefill": prefill}.items()},
        prefill_best=Best.of(prefill, BEST_OF_PREFILL),
        steps=steps,
        output=Output(text, spans, mmd, {"result.mmd": Artefact(len(mmd.encode()))}),
        logits=prefill[None],
    )


def _steps(session: Session[Any], state: Any, count: int) -> Iterator[Step]:
    for _ in range(count):
        token = int(state.logits[0].argmax())
        yield Step(token, Best.of(state.logits[0]))
        session.decode_step(state, token)


@dataclass
class Replay:
    """A reference that gives observations made before, and counts what it is asked."""

    observations: Mapping[str, Observation]
    provenance: Provenance = MADE
    asked: list[str] = field(default_factory=list)

    def observe(self, case: Case) -> Observation:
        self.asked.append(case.id)
        ceiling = f"generate: max_new_tokens {case.max_new_tokens} in place of 8192"
        return replace(self.observations[case.id], provenance=self.provenance.with_override(ceiling))


@dataclass(frozen=True)
class Made:
    """Cases, and what was seen of each."""

    pages: Path
    cases: list[Case]
    observations: dict[str, Observation]

    def reference(self, **options: Any) -> Replay:
        return Replay(self.observations, **options)


def record(golden: Path, reference: Replay, cases: Sequence[Case], *, again: bool = False) -> Recording:
    with recorder(golden, reference.provenance) as target:
        for case in target.missing(cases, again=again):
            target.add(case, reference.observe(case))
        return target.publish()


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
