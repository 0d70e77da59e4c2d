"""The engine as its users call it: results, batches, stage times, bad input."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import ImageOps

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.policy import CachePolicy
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.fusion import scatter
from pytest_dsocr.engine.vendor_model import vendor_model
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from suites.contract.asked import own_preset
from suites.contract.pages import PAGES

TOKENS = 10
CROPPED, CROPS = "landscape", "crops"
SMALL = replace(
    DEEPSEEK_OCR,
    presets={
        CROPS: replace(
            own_preset(CROPS, 128, 128, True), tiling=replace(DEEPSEEK_OCR.tiling, crop_px=128, squashed_up_to_px=128)
        )
    },
    default_preset=CROPS,
)
"""The family with crops of 128 px, a twenty-fifth of the work."""


def cropping(attention: str = "eager", ring: int | None = None, **options: Any) -> Engine[Any]:
    engine = Engine.from_checkpoint("synthetic:tiny", attention=attention, **options)
    family = replace(SMALL, cache=CachePolicy(ring))
    model_of(engine).arch = replace(model_of(engine).arch, family=family)
    return engine


def test_a_result_holds_what_was_asked_and_what_it_took() -> None:
    engine = cropping()
    result = engine.run(PAGES[CROPPED](), preset=CROPS, max_new_tokens=TOKENS)
    inputs = engine.prepare(PAGES[CROPPED](), preset=CROPS)
    columns, rows = inputs.images_spatial_crop[0].tolist()
    assert len(result.token_ids) == result.counts.output_tokens == TOKENS
    assert result.counts.views == columns * rows + 1
    assert result.counts.decode_steps == TOKENS - 1
    assert (result.counts.prompt_tokens, result.counts.image_tokens) == (inputs.prompt_tokens, inputs.image_tokens)
    assert result.finish_reason == "length"
    assert result.text == engine.tokenizer.decode(result.token_ids).strip()


def test_a_ceiling_that_is_the_vendors_and_not_the_models_is_warned_of() -> None:
    engine = Engine.from_checkpoint("synthetic:tiny")
    model = model_of(engine)
    model.arch = replace(model.arch, decoder=replace(model.arch.decoder, max_position_embeddings=None))
    with pytest.warns(UserWarning, match="no max_position_embeddings.* 8192 tokens"):
        fallen_back = Engine(model, engine.tokenizer)
    assert fallen_back.policy.max_new_tokens == 8192
    assert Engine(model, engine.tokenizer, policy=engine.policy).policy == engine.policy  # a warning would fail it


TWICE = ("sam", "clip", "projector", "vision_fusion")
"""For crops and page; views put together, and then into the prompt."""


def test_every_stage_is_timed_and_decode_once_a_step() -> None:
    engine = cropping(instrument="timed")
    result = engine.run(PAGES[CROPPED](), preset=CROPS, max_new_tokens=TOKENS)
    runs = {stage: len(times.runs_ms) for stage, times in result.stage_times.items()}
    names = tuple(engine.family.stage)
    assert tuple(runs) == names
    assert runs == {**dict.fromkeys(names, 1), "decode": TOKENS - 1} | dict.fromkeys(TWICE, 2)
    assert all(ms > 0 for times in result.stage_times.values() for ms in times.runs_ms)


def test_a_page_run_twice_is_timed_twice_and_not_added_up(tiny: Engine[Any]) -> None:
    engine = Engine(tiny.model, tiny.tokenizer, policy=tiny.policy, instrument="timed")
    inputs = engine.prepare(PAGES["tiny"](), preset="tiny")
    reported: list[int] = []
    results = [engine.run_prepared(inputs, max_new_tokens=2, on_token=reported.append) for _ in range(2)]
    assert reported == [token for result in results for token in result.token_ids]
    first, second = (result.stage_times for result in results)
    assert [len(times["prefill"].runs_ms) for times in (first, second)] == [1, 1]
    assert "tokenizer" in first
    assert "tokenizer" not in second


@pytest.mark.parametrize("ring", [None, 3])
def test_batched_rows_equal_their_single_runs(ring: int | None) -> None:
    """Pages of three prompt lengths, one of which ends long before the others."""
    engine = cropping("sdpa", ring)
    pages = [PAGES[name]() for name in ("square", "tiny", "landscape")]
    free = [engine.run(page, preset=CROPS, max_new_tokens=TOKENS).token_ids for page in pages]
    others = {*free[0], *free[2]}
    end = next(token for token in free[1][1:] if token not in others)
    engine.policy = replace(engine.policy, eos_id=end)

    alone = [tokens[: tokens.index(end) + 1] if end in tokens else tokens for tokens in free]
    together = engine.run_batch(pages, preset=CROPS, max_new_tokens=TOKENS)
    assert [r.token_ids for r in together] == alone
    assert [r.finish_reason for r in together] == ["length", "eos", "length"]
    assert [r.counts.views for r in together] == [10, 1, 9]
    assert len(together[1].token_ids) < TOKENS
    assert engine.run_batch([]) == []


@pytest.mark.parametrize("at_one_place", [False, True])
def test_two_images_in_one_prompt_are_each_seen(at_one_place: bool) -> None:
    engine = cropping()
    model_of(engine).arch = replace(model_of(engine).arch, family=replace(SMALL, pages_prompt="pages" * at_one_place))
    prompt = "<image>Multi page parsing." if at_one_place else "<image>\nand\n<image>\nFree OCR."
    preset = own_preset("whole", 128, 128, not at_one_place)
    pages = [PAGES[CROPPED](), ImageOps.mirror(PAGES[CROPPED]())]
    embeds: list[torch.Tensor] = []
    layer = model_of(engine).model.layers[0]
    layer.register_forward_pre_hook(lambda _, given: embeds.append(given[0]))
    inputs = engine.prepare(pages, prompt=prompt, preset=preset)
    state = engine.prefill(inputs)
    alone = [engine.prefill(engine.prepare(page, prompt="free", preset=preset)) for page in pages]
    fused = [single.visions[0].vision_fusion for single in alone]
    assert [vision.vision_fusion.shape for vision in state.visions] == [one.shape for one in fused]
    assert torch.equal(embeds[0][inputs.images_seq_mask], torch.cat(fused))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "finds no CUDA GPU; choose cpu"),
        ({"device": "tpu"}, "device 'tpu' is unknown; choose cpu"),
        ({"device": "meta"}, "device 'meta' is not supported; choose cpu"),
        ({"dtype": "int8"}, "dtype 'int8' is unknown; choose one of float32"),
        ({"attention": "paged"}, "attention 'paged' is unknown; choose one of eager"),
    ],
)
def test_bad_options_list_the_valid_ones(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DsocrError, match=message):
        Engine.from_checkpoint("synthetic:tiny", **options)


@pytest.mark.parametrize("features", [1, 3])
def test_scatter_refuses_too_few_and_too_many(features: int) -> None:
    mask = torch.tensor([[False, True, False, True]])
    with pytest.raises(DsocrError, match=rf"2 image tokens and vision gave {features} features"):
        scatter(torch.zeros(1, 4, 1), mask, torch.zeros(features, 1), expected=2)


def test_an_object_that_is_not_the_vendors_is_refused() -> None:
    class Other(torch.nn.Module):
        model = torch.nn.Linear(1, 1)

    with pytest.raises(DsocrError, match="Other is not a vendor's class"):
        vendor_model(Other())


def test_a_vendor_model_in_training_mode_is_refused(tiny: Engine[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """There the vendor's forward runs vision at every step."""
    like_the_vendors = model_of(tiny)
    kind = type(DEEPSEEK_OCR.vendor.architecture, (type(like_the_vendors),), {})
    monkeypatch.setattr(like_the_vendors, "__class__", kind)
    like_the_vendors.train()
    try:
        with pytest.raises(DsocrError, match=r"training mode.*call model\.eval"):
            vendor_model(like_the_vendors)
    finally:
        like_the_vendors.eval()
