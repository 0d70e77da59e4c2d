"""What a session does by itself, as an observation: a reference for tests, made without what follows one."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.mmd import clean_output
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import generate
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


def seen(session: Engine[Any], case: Case, *, keep_values: bool = False) -> Observation:
    """Read ``case`` freely and give all that was seen."""
    inputs = session.prepare(case.page, prompt=case.prompt, preset=case.preset)
    state = session.prefill(inputs)
    tensors = {name: tensor for vision in state.visions for name, tensor in vision.seams.items()}
    tensors["prefill"] = state.logits[0].clone()
    policy = replace(session.policy, max_new_tokens=case.max_new_tokens)
    tokens = generate(session.pipeline, state, [inputs.input_ids[0].tolist()], policy, session.tokenizer.special.pad)
    steps = tuple(Step(token, Best.of(state.logits[0])) for [token] in tokens)
    return Observation(
        case_id=case.id,
        inputs=InputsDigest.of(inputs.tensors, keep_values=keep_values),
        seams={name: Seam.of(tensor, keep_values=keep_values) for name, tensor in tensors.items()},
        prefill_best=Best.of(tensors["prefill"], BEST_OF_PREFILL),
        steps=steps,
        output=output_of(session, case, [step.token for step in steps]),
    )


def output_of(session: Engine[Any], case: Case, tokens: list[int]) -> Output:
    """What comes of tokens."""
    text = clean_output(session.tokenizer.decode(tokens))
    spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text).spans)
    with tempfile.TemporaryDirectory() as folder:
        written = write_artifacts(text, case.page, folder)
        artefacts = {path.relative_to(folder).as_posix(): Artefact.of(path) for path in written.paths}
        mmd = Path(folder, "result.mmd").read_bytes().decode()
    return Output(text, spans, mmd, artefacts)
