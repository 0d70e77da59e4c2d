"""The documentation agrees with the code: links lead somewhere, commands are taken, examples are run."""

import ast
import importlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_dsocr.cli.main import parser
from pytest_dsocr.cost.cost import as_counted
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.options import OPTIONS
from tests.checkout import CHECKOUT
from tests.markdown import HOMES, PAGES, anchors, blocks, links, table, text_of

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
NEEDS_MORE = "# needs "
"""First words of a block that a test cannot run."""
OURS = re.compile(r"--dsocr-[a-z-]+")


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{page.name} names {target}"
        assert not anchor or anchor in anchors(target), f"{page.name} names #{anchor} of {target.name}"


@every_page
def test_every_option_that_is_named_exists(page: Path) -> None:
    named = set(OURS.findall(text_of(page))) - {"--dsocr-"}
    assert named <= {option.flag for option in OPTIONS}


@every_page
def test_what_is_imported_in_examples_exists(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pytest_dsocr"):
                for name in node.names:
                    assert hasattr(importlib.import_module(node.module), name.name), f"{node.module}.{name.name}"


def check_command(command: str) -> None:
    """Raise ``SystemExit`` where the command line does not take a command of ours."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)[1:]
    parser().parse_args(words[: words.index("--")] if "--" in words else words)


@every_page
def test_commands_of_ours_are_taken_by_the_command_line(page: Path) -> None:
    for command in re.findall(r"^    (dsocr (?:[^\n\\]|\\\n)+)", text_of(page), re.MULTILINE):
        check_command(command)


def shell_of(part: Any) -> Iterator[str]:
    """Yield the script of each step of GitHub's workflows, or of each part of a job of GitLab's."""
    named = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in named:
        if name in ("run", "before_script", "script", "after_script"):
            yield value if isinstance(value, str) else "\n".join(value)
        else:
            yield from shell_of(value)


ACTION = CHECKOUT / "ci/action/action.yml"
DSOCR = r'^ *(?:\.venv/bin/dsocr|"\$DSOCR_PYTHON" -m pytest_dsocr)( (?:[^\n\\|]|\\\n)+)'


def actions_used(part: Any) -> Iterator[dict[str, str]]:
    """Yield what each use of this project's action is given."""
    if isinstance(part, dict) and "ci/action@" in str(part.get("uses")):
        yield part["with"]
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from actions_used(value)


@pytest.mark.parametrize(
    "file", [*sorted((CHECKOUT / "ci/workflows").glob("*.yml")), ACTION], ids=lambda file: file.stem
)
def test_the_shell_of_a_workflow_can_be_parsed_and_its_commands_are_taken(file: Path) -> None:
    workflow, inputs = yaml.safe_load(text_of(file)), yaml.safe_load(text_of(ACTION))["inputs"]
    scripts = [*shell_of(workflow)]
    for script in scripts:
        subprocess.run(["bash", "-n", "-c", script], check=True)
    commands = re.findall(DSOCR, "\n".join(scripts), re.MULTILINE)
    for given in actions_used(workflow):
        assert given.keys() <= inputs.keys()
        commands += [f" compare {given.get('options', '')}", f" bench A B {given.get('bench-options', '')}"]
    assert commands
    for command in commands:
        check_command(re.sub(r'\$BENCH|"\$@"|"\$\{options\[@\]\}"', "", f"dsocr{command}"))


def test_the_weights_of_mini_load_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    _, block, _ = blocks("docs/levels-and-protocol.md", "python")
    exec(compile(block, "docs/levels-and-protocol.md", "exec"), {})
    folder, *numbers = capsys.readouterr().out.split()
    assert Path(folder, "config.json").is_file()
    assert numbers == ["272", "2017", "2006"]


def test_every_page_is_named_in_the_index() -> None:
    named = {target.resolve() for target, _ in links(CHECKOUT / "docs" / "README.md")}
    assert {page for page in PAGES if page.parent == CHECKOUT / "docs"} - {CHECKOUT / "docs" / "README.md"} <= named


def test_every_file_that_extending_names_is_there() -> None:
    named = re.findall(r"`((?:pytest_dsocr|suites|docs|golden|ci)/[\w./-]+)`", text_of("docs/extending.md"))
    assert len(named) > 20
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


@pytest.mark.dsocr_slow
def test_the_engine_runs_as_its_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks one after the other, as a reader would type them."""
    for name, page in zip(("page.png", "other.png"), shipped("dev-3")[1:], strict=True):
        shutil.copy(page, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("docs/engine.md", "python"):
        if not block.startswith(NEEDS_MORE):
            exec(compile(block, "docs/engine.md", "exec"), names)
    assert names["cache"].is_ragged
    assert [result.counts.output_tokens for result in names["results"]] == [20, 20]
    assert (tmp_path / "out" / "result.mmd").is_file()


@pytest.mark.dsocr_slow
def test_a_fixture_is_overridden_and_a_snapshot_kept_as_their_pages_say(pytester: pytest.Pytester) -> None:
    subject, *_ = blocks("docs/levels-and-protocol.md", "python")
    [_, override] = blocks("docs/options.md", "python")
    [snapshot] = [one for one in blocks("docs/recordings.md", "python") if "dsocr_snapshot" in one]
    pytester.makepyfile(my_ocr=subject, conftest=override, test_it=snapshot)
    run = ("--dsocr-golden=mine", f"--dsocr-pages={shipped('dev-3')[2]}", "--dsocr-max-new-tokens=9")
    pytester.runpytest_inprocess(*run, "--snapshot-update").assert_outcomes(passed=1)
    pytester.runpytest_inprocess(*run).assert_outcomes(passed=1)
    [kept] = Path("mine").rglob("test_it/*.json")
    kept.write_text(kept.read_text(encoding="utf-8").replace('"characters":', '"letters":'), encoding="utf-8")
    pytester.runpytest_inprocess(*run).assert_outcomes(failed=1)


def block(language: str, page: str, holding: str) -> str:
    [found] = [text for text in blocks(page, language) if holding in text]
    return found


def test_pictures_and_links_of_the_readme_have_absolute_addresses() -> None:
    """A package index shows the page without the checkout around it."""
    targets = re.findall(r"\]\(([^)]+)\)", text_of("README.md"))
    assert targets
    assert [target for target in targets if not target.startswith(HOMES)] == []


@pytest.mark.dsocr_slow
def test_the_readmes_example_is_a_subject_and_its_own_test_passes(pytester: pytest.Pytester) -> None:
    example, own_test = block("python", "README.md", "class MyOcr"), block("python", "README.md", "def test_boxes")
    assert example == block("python", "docs/levels-and-protocol.md", "class MyOcr")
    assert own_test == block("python", "docs/options.md", "def test_boxes")
    pytester.makepyfile(my_ocr=example, test_boxes=own_test)
    ini = block("toml", "docs/options.md", "dsocr_subject")
    [page] = (page for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
    pytester.makepyprojecttoml(ini.replace('["scans/first.png", "scans/second.png"]', f'["{page}"]'))
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(
        ["dsocr: subject my_ocr:MyOcr *; offers L0 text", "1 comparison by * in 1 case: 1 MATCH"]
    )
    result.assert_outcomes(passed=1)


COST = "docs/performance.md"
WORK = Workload((1400, 1400), DEEPSEEK_OCR.presets["gundam"], text_tokens=10, generated_tokens=65)
COSTS = stages_of(Architecture.published(DEEPSEEK_OCR), WORK)
WAYS = (("eager", "cpu"), ("sdpa", "cpu"), ("flash_attention_2", "cuda"))


def giga(flops: float) -> str:
    return f"{flops / 1e9:,.1f}"


def test_the_costs_of_stages_are_what_is_computed() -> None:
    rows = [
        [
            f"`{name}`",
            giga(stage.cost.matrix_flops),
            *(giga(as_counted(stage, *way)) for way in WAYS),
            f"{stage.cost.bytes / 1e9:.2f}",
        ]
        for name, stage in COSTS.items()
    ]
    assert table(COST, "stage") == rows
    assert f"a prompt of {WORK.prompt_tokens} tokens" in text_of(COST)


def test_the_example_of_costs_runs() -> None:
    [block] = blocks(COST, "python")
    reported: list[tuple[object, ...]] = []
    exec(compile(block, COST, "exec"), {"print": lambda *words: reported.append(words)})
    assert reported == [(name, one.cost.matrix_flops, one.cost.bytes) for name, one in COSTS.items()]
