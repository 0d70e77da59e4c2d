"""A subject that ends CUDA for its process: the run says so once, and stops."""

import re

from tests.plugin.conftest import TWO, Repository, unwrapped

SAID = "CUDA failed for good in the process of the tests, first in test_it.py::test_text[second-tiny-markdown] (read)"
WHAT_TO_DO = "what follows was not compared; run the subject in a process of its own: --dsocr-isolate"


def test_what_ended_cuda_is_said_once_and_nothing_follows(repository: Repository) -> None:
    repository.settle("Asserting")
    run = repository.run(TWO, *repository.pages("second", "third"), "--dsocr-out=out")
    run.assert_outcomes(passed=2, failed=1)
    result, said = repository.result(), unwrapped(run)
    assert [(test["nodeid"].partition("::")[2], test["outcome"]) for test in result["tests"]] == [
        ("test_text[page-tiny-markdown]", "passed"),
        ("test_boxes[page-tiny-markdown]", "passed"),
        ("test_text[second-tiny-markdown]", "error"),
    ]
    assert not result["passes"]
    assert "3 of 6 planned tests did not end" in result["verdict"]
    assert [note for note in result["notes"] if "CUDA" in note] == [f"{SAID}; {WHAT_TO_DO}"]
    assert said.count(WHAT_TO_DO) == 1
    assert len(re.findall("device-side assert triggered", said)) >= 1
