"""The session against the vendor's real ``infer``, page by page and preset by preset, in one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.case import Exchange, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.vendor_code.observe import observe_infer
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import PAGES, write_page
from tests.conftest import model_of
from tests.parity.checks import assert_all
from tests.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"
NEW_TOKENS = 64
LOOP_TOKENS = 200
LIMITS = replace(tolerances("float32"), seam=1e-5, logits=1e-5)

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@dataclass
class Pair:
    """The two sides, with the same weights."""

    session: Engine[Any]
    vendor: VendorRuntime


@pytest.fixture(scope="session")
def pair() -> Pair:
    session = Engine.from_checkpoint(CHECKPOINT)
    vendor = VendorRuntime.load(vendor_folder(), CHECKPOINT)
    assert dict(vendor.model.named_parameters()).keys() == model_of(session).state_dict().keys()
    return Pair(session, vendor)


@pytest.mark.parametrize("preset", DEFAULT.presets)
@pytest.mark.parametrize("page", PAGES)
def test_session_is_the_vendors(pair: Pair, page: str, preset: str, tmp_path: Path) -> None:
    case = make_case(write_page(page, tmp_path), "markdown", preset, NEW_TOKENS)
    check(pair.session, case, pair.vendor.observe(case, keep_values=True))


def test_vendors_object_behind_the_session(pair: Pair, tmp_path: Path) -> None:
    case = make_case(write_page("portrait", tmp_path), "markdown", "gundam", NEW_TOKENS)
    expected = pair.vendor.observe(case, keep_values=True)
    around = Engine(VendorModel(pair.vendor.model), pair.session.tokenizer, instrument="timed")
    check(around, case, expected)
    result = around.run(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=NEW_TOKENS)
    assert result.token_ids == expected.token_ids
    assert result.counts.decode_steps == NEW_TOKENS - 1


@pytest.mark.parametrize(("eval_mode", "size"), [(False, 20), (True, 35)])
def test_ngram_rule_is_the_vendors(pair: Pair, eval_mode: bool, size: int, tmp_path: Path) -> None:
    """A model made to repeat itself is stopped at the same token by both."""
    case = make_case(write_page("square", tmp_path), "free", "tiny", LOOP_TOKENS)
    weights, vendors = model_of(pair.session).lm_head.weight, pair.vendor.model.lm_head.weight.data
    saved = weights.clone()
    weights.copy_(model_of(pair.session).model.embed_tokens.weight * 50)
    vendors.copy_(weights)
    try:
        run = observe_infer(pair.vendor.model, pair.vendor.tokenizer, case, tmp_path / "out", eval_mode=eval_mode)
        inputs = pair.session.prepare(case.page, prompt=case.prompt, preset=case.preset)
        actual = pair.session.run_prepared(inputs, max_new_tokens=LOOP_TOKENS, no_repeat_ngram_size=size)
    finally:
        weights.copy_(saved)
        vendors.copy_(saved)
    assert run.generate_kwargs["no_repeat_ngram_size"] == size
    unruled = [best.ids[0] for best in run.best]
    assert unruled != run.token_ids, "the rule never fired, so this compared nothing"
    assert list(actual.token_ids) == run.token_ids


def check(session: Engine[Any], case: Case, expected: Observation) -> None:
    report = judge(Exchange(case, follow(SessionSubject(session), case, expected), expected, 0.0, 0.0), LIMITS)
    assert_all(report)
    assert {"sam.page/0", "clip.page/0", "prefill/0"} <= {one.what for one in report.comparisons}
