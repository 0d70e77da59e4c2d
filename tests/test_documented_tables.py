"""Tables of the documentation equal the code."""

from dataclasses import asdict

import pytest

from pytest_dsocr.adapters.dump_check import shapes
from pytest_dsocr.cli import faults
from pytest_dsocr.compare.tolerances import BUDGETS, BY_DTYPE, LOSSES, NAMES
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.explain.catalogue import ports
from pytest_dsocr.models import MODELS, STAGE_NAMES
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.plugin import fixtures, perf, side_fixtures, stage_fixtures
from pytest_dsocr.plugin.markers import registration_lines
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.records.config import Level
from pytest_dsocr.subjects.protocol import METHODS
from tests.markdown import table, text_of


def test_options_are_those_of_the_code_and_in_its_order() -> None:
    several = "; may be given several times"
    assert table("docs/options.md", "option") == [
        [
            f"`{option.flag}`",
            f"`{option.default}`" if option.default else option.unset,
            (option.help + several * option.many).replace("<image>", "`<image>`"),
        ]
        for option in OPTIONS
    ]


def test_fixtures_are_those_of_the_code_and_in_its_order() -> None:
    reported = [row[0].strip("`") for row in table("docs/options.md", "fixture")]
    names = vars(fixtures) | vars(side_fixtures) | vars(stage_fixtures) | vars(perf)
    assert sorted(reported) == sorted(name for name in names if name.startswith("dsocr_"))


def test_markers_are_those_of_the_code() -> None:
    reported = [f"{row[0].strip('`')}: {row[1]}" for row in table("docs/options.md", "marker")]
    assert reported == registration_lines()


def test_levels_are_those_of_the_code() -> None:
    reported = [(row[0], row[1].replace("`", "")) for row in table("docs/levels-and-protocol.md", "level")]
    assert reported == [(f"{level} {level.meaning}", ", ".join(METHODS[level])) for level in Level]


@pytest.mark.parametrize(
    ("page", "header", "names"),
    [
        ("levels-and-protocol", "method", [name for names in METHODS.values() for name in names]),
        ("verdicts", "verdict", [str(verdict) for verdict in Verdict]),
        ("engine", "stage", [*STAGE_NAMES]),
    ],
)
def test_the_first_column_of_a_table_is_that_of_the_code(page: str, header: str, names: list[str]) -> None:
    assert [row[0].strip("`").partition("(")[0] for row in table(f"docs/{page}.md", header)] == names


def test_tolerances_are_those_of_the_code() -> None:
    reported = {row[0].strip("`"): [float(value) for value in row[2:]] for row in table("docs/verdicts.md", "name")}
    limits = [asdict(BY_DTYPE[dtype]) for dtype in ("float32", "float16", "bfloat16")]
    assert reported == {name: [limit[name] for limit in limits] for name in NAMES}


def test_budgets_are_those_of_the_code() -> None:
    rows = {name.strip("`"): [*map(float, allowed)] for name, _, *allowed in table("docs/precision.md", "what")}
    assert rows == {name: [budget[name] for budget in BUDGETS.values()] for name in LOSSES}


def test_models_are_those_of_the_code() -> None:
    def kept(ring: int | None) -> str:
        return f"the prompt's and the last {ring}" if ring else "all"

    assert table("docs/models.md", "model") == [
        [
            family.title,
            f"`{family.name}`",
            *(", ".join(f"`{name}`" for name in names) for names in (family.presets, family.prompts)),
            f"{family.tiling.least} to {family.tiling.most}",
            kept(family.cache.ring),
            f"`{family.form.result_file}`",
        ]
        for family in MODELS.values()
    ]


def test_the_table_of_bugs_is_of_the_catalogue() -> None:
    assert text_of("docs/bugs.md") == faults.table(ports())


@pytest.mark.dsocr_slow
def test_the_files_of_a_dump_are_those_of_the_code() -> None:
    """Compare the shapes as well, for the published checkpoint in Gundam."""
    found = {name.strip("`"): shape.strip("`") for name, shape, _ in table("docs/adapters.md", "file")}
    assert found == {
        name: f"[{', '.join(map(str, shape))}]"
        for name, shape in shapes(Architecture.published(DEEPSEEK_OCR), DEEPSEEK_OCR.preset("gundam")).items()
    }
