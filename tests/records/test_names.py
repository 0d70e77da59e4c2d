"""Names of tensors and comparisons, as text and as values."""

import pytest

from pytest_dsocr.records.names import ComparisonKind, ComparisonName, TensorName


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vision_fusion", TensorName("vision_fusion")),
        ("sam.page", TensorName("sam", "page")),
        ("sam.crops/11", TensorName("sam", "crops", 11)),
        ("prefill/0", TensorName("prefill", block=0)),
        ("result.mmd", TensorName("result.mmd")),
        ("sam/called in vision", TensorName("sam/called in vision")),
        ("", TensorName("")),
    ],
)
def test_tensor_name(text: str, name: TensorName) -> None:
    assert TensorName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "kind", "thing", "stage"),
    [
        ("sam.rounding", ComparisonKind.ROUNDING, "sam", "sam"),
        ("perf/decode.early", ComparisonKind.TIME, "decode.early", "perf"),
        ("text/odd/tie", ComparisonKind.ODD_PAGE, "tie", "text"),
        ("sam.page/3", ComparisonKind.VALUE, "sam.page/3", "sam"),
        ("sam.page/another page", ComparisonKind.VALUE, "sam.page/another page", "sam"),
        ("result.mmd", ComparisonKind.VALUE, "result.mmd", "result.mmd"),
    ],
)
def test_comparison_name(text: str, kind: ComparisonKind, thing: str, stage: str) -> None:
    name = ComparisonName.parse(text)
    assert (name, name.stage, str(name)) == ((kind, thing), stage, text)
