"""``processor:``: inputs of a server's processor, with the session behind."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import session_subject

HERE = "processor:tests.adapters.processors"


def loaded(name: str) -> Any:
    return load_subject(f"{HERE}:{name}", Setup())


@pytest.mark.parametrize(("name", "preset"), [("Right", "tiny"), ("AsSglang", "gundam")])
def test_a_right_processor_gives_the_sessions_inputs_and_text(name: str, preset: str) -> None:
    subject, session = loaded(name), session_subject(Setup())
    asked: dict[str, Any] = {"prompt": f" {DEFAULT.prompts['markdown']}\n", "preset": DEFAULT.presets[preset]}
    page = shipped("dev-3")[0]
    actual, expected = subject.inputs(page, **asked), session.inputs(page, **asked)
    for key, value in expected.items():
        assert actual[key].dtype == value.dtype, key
        assert torch.equal(actual[key], value), key
    if preset == "tiny":
        read = {**asked, "max_new_tokens": 24}
        assert subject.read(page, **read) == session.read(page, **read)


def test_one_that_is_not_there_or_another_kind_is_reported() -> None:
    for spec, message in {
        "processor:nowhere": "'nowhere' names no subject; give session, ",
        "processor:no_such_package:Any": "'no_such_package:Any': there is no module no_such_package, neither in ",
        f"{HERE}:Absent": "tests.adapters.processors (",
    }.items():
        with pytest.raises(DsocrError, match=f"^{re.escape(message)}"):
            load_subject(spec, Setup())
    asked: dict[str, Any] = {"prompt": DEFAULT.prompts["markdown"], "preset": DEFAULT.presets["tiny"]}
    for name, message in {
        "WithoutPixels": "the processor gave input_ids, and no images_seq_mask; ",
        "OfPictures": "the processor takes images, and no prompt or text; name another",
    }.items():
        with pytest.raises(DsocrError, match=message):
            loaded(name).inputs(shipped("dev-3")[0], **asked)
