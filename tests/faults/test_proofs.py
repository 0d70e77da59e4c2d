"""No mistake is called proven unless it was planted, and no hint names a refuted one.

Each mistake is planted while its own row is left out of the search.

These commands run the whole matrix. Results in the folder are kept, so an interrupted run continues::

    export DSOCR_PROOFS=FOLDER  # DSOCR_PROOFS_EVERY=20 takes every twentieth row
    pytest tests/faults/test_proofs.py -n 30 -k by_stages   # proofs by tensors
    pytest tests/faults/test_proofs.py -n 30 -k each_reads  # texts of each mistake, for the next command
    pytest tests/faults/test_proofs.py -n 30 -k by_texts    # proofs by texts alone
    python -m tests.faults.proofs >proofs.json              # all proofs in one file
"""

from pathlib import Path

import msgspec
import pytest

from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.config import Level
from tests.faults.proofs import (
    ASKED,
    EVERY,
    OfTexts,
    Said,
    answered,
    every_id,
    kept,
    of_text_alone,
    proven_by_texts,
    reports,
    rows,
    with_stages,
)

WITH_STAGES = [*mistakes(DEEPSEEK_OCR)][::EVERY] if ASKED else []
OF_TEXTS = [*rows()][::EVERY] if ASKED else []


@pytest.mark.parametrize("name", WITH_STAGES)
def test_by_stages_no_other_mistake_is_proven(name: str) -> None:
    said = kept(f"stages/{name}", lambda: with_stages(name), Said)
    assert not said.is_false, said
    assert not said.refuted, said


@pytest.mark.parametrize("name", OF_TEXTS)
def test_what_each_reads_is_kept(name: str) -> None:
    assert kept(f"reads/{name}", lambda: of_text_alone(name), OfTexts).texts


@pytest.mark.parametrize("name", OF_TEXTS)
def test_by_texts_no_other_mistake_is_proven(name: str) -> None:
    read = {path.stem: msgspec.json.decode(path.read_bytes(), type=OfTexts).texts for path in reads()}
    said = kept(f"texts/{name}", lambda: proven_by_texts(name, read), OfTexts)
    assert not {run: one for run, one in said.runs.items() if one.is_false}


def reads() -> list[Path]:
    """Return the files with the texts of each mistake."""
    return sorted((Path(ASKED) / "reads").glob("*.json"))


@pytest.mark.parametrize("name", ["vision_fusion.separator-first", "projector.no-bias", "prompt.two-bos"])
def test_of_a_few_no_other_mistake_is_proven_by_stages(name: str) -> None:
    said = with_stages(name)
    assert said.first
    assert not said.is_false, said
    assert not said.refuted, said


def test_by_two_places_of_a_text_no_other_mistake_is_proven() -> None:
    """Only one other known mistake gives this page's text, but two places are too little for a proof."""
    [report, *_] = reports("prompt.two-bos", Level.TEXT, up_to_first=True)
    said = answered(report, [one for one in every_id() if one != "prompt.padded-front"])
    assert (said.named, said.places, said.untried, said.proven) == (("prompt.padded-front",), 2, 0, False)
