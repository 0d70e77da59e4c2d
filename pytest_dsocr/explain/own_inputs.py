"""The text of a subject that shows its inputs: what else is wrong if these do not explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.describe.texts import of_texts
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.along import copied
from pytest_dsocr.explain.catalogue.reading import reading
from pytest_dsocr.explain.search import NextWrong, Search
from pytest_dsocr.explain.texts import TextPage, explain_pages

LEFT = "a part of the text is left: of the subject's own inputs the engine reads another text"
ALONE = "a stage after the inputs is wrong as well, or `read` makes other inputs"


def explain_rest(engine: Engine[Any], inputs: Inputs, search: Search) -> NextWrong | None:
    """Search for what else changes a text whose inputs are wrong; None if the engine reads it of these inputs."""
    page = search.question.page
    tokens = _read(TextPage(engine, page, inputs))
    made = clean_output(engine.tokenizer.decode(tokens))
    if not tokens or made == page.text:
        return None
    rest = TextPage(engine, replace(page, reference_tokens=tuple(tokens), is_right=False), inputs)
    relation = simplest(of_texts(page.text, made))
    how = f" ({relation.text})" if relation else ""
    return NextWrong("text", explain_pages([rest], search), left=f"{LEFT}{how}; {ALONE}")


def _read(page: TextPage) -> Sequence[int]:
    """Return the tokens that the engine reads of a page; nothing if a tie is where these leave the subject's text."""
    engine, state = page.engine, copied(page.state)
    limits = tolerances(str(engine.model.dtype).removeprefix("torch."))
    prompt, eos, most = page.clean.inputs.input_ids[0].tolist(), engine.policy.eos_id, page.case.max_new_tokens
    said, is_along = list[int](), True
    for token in reading(engine.family, {}).tokens(engine.pipeline, state, prompt, engine.tokenizer, eos, most):
        if is_along and [token] != page.ids[len(said) : len(said) + 1]:
            logits, is_along = state.logits[0].double(), False
            own, best = logits[page.ids[len(said) : len(said) + 1]], float(logits.max())
            if len(own) and best - float(own) <= limits.ties * limits.ulp(best):
                return ()
        said.append(token)
    return said
