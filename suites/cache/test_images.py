"""Images are encoded once, in vision, and never in a step."""

from typing import Any

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.subjects.calls import at_stage

from .walk import Walk
from .ways import Ways


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each encoder of the checkpoint's model."""
    if "module" in metafunc.fixturenames:
        stages = [one for one in family_named(own_config(metafunc.config).checkpoint).of_views if one.blocks]
        metafunc.parametrize(
            ("stage", "module"), [(one.name, one.module) for one in stages], ids=[one.name for one in stages]
        )


@pytest.mark.dsocr_level("L2")
def test_steps_do_not_change_with_the_pixels(walk: Walk, ways: Ways, dsocr_subject: Any, dsocr_check: Check) -> None:
    """Overwrite the tensors of pixels and features after prefill; the steps must not change."""
    walk.subject.prefill(walk.copies(), -walk.features)  # a subject that accepts no other features is not offered this
    given, features = walk.copies(), walk.features.clone()
    with at_stage("prefill", "prefill"):
        state = dsocr_subject.prefill(given, features)
    for tensor in (given["images_ori"], given["images_crop"], features):
        tensor.neg_().add_(0.25)
    dsocr_check(ways.steps(walk.steps(state, walk.tokens), walk.steps(walk.start()[0], walk.tokens)))


@pytest.mark.dsocr_level("L3")
def test_vision_is_not_called_in_a_step(
    stage: str, module: str, walk: Walk, dsocr_subject: Any, dsocr_check: Check
) -> None:
    calls: list[str] = []
    with dsocr_subject.module(module).register_forward_pre_hook(lambda *_: calls.append("call")):
        features = walk.subject.vision(walk.copies())["vision_fusion"]
        in_vision = len(calls)
        state, _ = walk.subject.prefill(walk.copies(), features)
        calls.clear()
        walk.steps(state, walk.tokens)
    dsocr_check(
        [
            as_expected(f"{stage}/called in vision", in_vision > 0, True, f"else {module} is not in use"),
            as_expected(f"{stage}/called in steps", len(calls), 0, f"calls in {len(walk.tokens)} steps"),
        ]
    )
