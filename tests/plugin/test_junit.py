"""What pytest's own JUnit file says of each test and of the run, with and without workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.plugin.conftest import Repository

TESTS = """
    def test_text(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")

    def test_boxes(dsocr_report, dsocr_check, record_property):
        record_property("mine", "kept")
        dsocr_check(dsocr_report, "boxes")

    def test_own(dsocr_reading):
        pass

    def test_not_ours():
        pass
"""


def properties() -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """Those of the run, and of each test by its name."""
    [suite] = ElementTree.parse("junit.xml").getroot()
    tests = {str(case.get("name")).partition("[")[0]: _under(case) for case in suite.iter("testcase")}
    return _under(suite), tests


def _under(element: ElementTree.Element) -> dict[str, str]:
    found = [(str(one.get("name")), str(one.get("value"))) for one in element.findall("properties/property")]
    assert len({name for name, _ in found}) == len(found), "each once"
    return dict(found)


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_tests_and_the_run_have_their_properties(repository: Repository, arguments: tuple[str, ...]) -> None:
    repository.settle(subject="Misreader", ini="junit_family = xunit1")
    repository.run(TESTS, "--junit-xml=junit.xml", *arguments, apart=bool(arguments))
    run, tests = properties()
    assert run["dsocr_ended_as"] == "wrong"
    assert run["dsocr_subject"] == "standin:Misreader"
    assert run["dsocr_key"] == "mini/cpu-float32-eager"
    assert run["dsocr_provenance.checkpoint_sha256"].isalnum()
    assert run["dsocr_provenance.vendor_sha256.modeling_deepseekocr.py"] == "cd" * 32
    assert "--junit-xml=junit.xml" in run["dsocr_command"]
    wrong = tests["test_text"]
    assert (wrong["dsocr_ended_as"], wrong["dsocr_verdict"], wrong["dsocr_stage"]) == ("wrong", "WRONG", "text")
    assert wrong["dsocr_case"] == "page-tiny-markdown"
    assert wrong["dsocr_key"] == "mini/cpu-float32-eager"
    assert wrong["dsocr_reference"].startswith("live, mini/cpu-float32-eager, vendor's file cdcdcdcdcdcd")
    right = tests["test_boxes"]
    assert (right["dsocr_ended_as"], right["dsocr_verdict"], right["mine"]) == ("passes", "MATCH", "kept")
    assert tests["test_not_ours"] == {}


def test_a_fault_is_told_with_its_stage_and_whose_it_is(repository: Repository) -> None:
    repository.settle(subject="Broken", ini="junit_family = xunit1")
    repository.run(TESTS, "--junit-xml=junit.xml")
    told = properties()[1]["test_text"]
    assert (told["dsocr_ended_as"], told["dsocr_stage"]) == ("wrong", "read")
    assert "ValueError" in told["dsocr_fault"]
    assert properties()[1]["test_own"]["dsocr_stage"] == "read", "where nothing was compared as well"
    repository.settle(reference="Silent", ini="junit_family = xunit1")
    repository.run(TESTS, "--junit-xml=junit.xml")
    run, tests = properties()
    assert run["dsocr_ended_as"] == tests["test_text"]["dsocr_ended_as"] == "infrastructure"


def test_a_project_that_uses_nothing_of_it_has_no_property(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    pytester.runpytest_inprocess("--junit-xml=junit.xml")
    assert properties() == ({}, {"test_it": {}})
    assert Path("junit.xml").read_text(encoding="utf-8").count("dsocr") == 0
