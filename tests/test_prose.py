"""The documentation stays within its size, its sentences are short, and the README is what a newcomer can follow."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import CHECKOUT
from tests.markdown import blocks, table, text_of

GENERATED = ("bugs.md", "implementations.md", "evidence.md")
WRITTEN = [page for page in sorted((CHECKOUT / "docs").glob("*.md")) if page.name not in GENERATED]
PAGES, WORDS, ENTRIES, README_LINES, LONG_SENTENCES = 15, 22_000, 60, 110, 25
COMMAND = "python3 -m venv .venv && .venv/bin/pip install -q tox && .venv/bin/tox run -e {}"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of running text, without code blocks, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = ("" if re.match(r"    |\||#|<|!\[", line) else line for line in text.splitlines())
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", "\n".join(lines)):
        yield from re.split(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*\[])", paragraph)


def long_sentences(text: str) -> list[str]:
    return [" ".join(one.split()) for one in sentences(text) if len(one.split()) > 30]


def test_long_sentences_are_found_in_running_text_alone() -> None:
    long = "word " * 30 + "end."
    assert long_sentences(
        f"Short one. {long.capitalize()}\n\n- {long}\n\n    {long}\n\n| {long} |\n\n```\n{long}\n```\n"
    ) == [long.capitalize(), f"- {long}"]


def test_few_sentences_of_the_documentation_are_long() -> None:
    found = [one for page in (*WRITTEN, CHECKOUT / "README.md") for one in long_sentences(text_of(page))]
    assert len(found) < LONG_SENTENCES, "\n".join(found)


def test_the_documentation_is_short() -> None:
    assert len(WRITTEN) <= PAGES
    words = {page.name: len(re.findall(r"\S*\w\S*", text_of(page))) for page in WRITTEN}
    assert sum(words.values()) <= WORDS, words


def test_the_glossary_has_one_sentence_for_each_word() -> None:
    entries = table("docs/glossary.md", "word")
    assert len(entries) <= ENTRIES
    words = [word.lower() for word, _ in entries]
    assert words == sorted(set(words))
    assert [meaning for _, meaning in entries if len([*sentences(meaning)]) != 1 or not meaning.endswith(".")] == []


def test_the_readme_is_short_and_has_its_parts_in_order() -> None:
    readme = text_of("README.md")
    assert len(readme.splitlines()) <= README_LINES
    parts = ["Quickstart", "A failing run", "Two commands", "Your own implementation", "Which page for me"]
    assert re.findall(r"^## (.+)$", readme, re.MULTILINE) == parts


@pytest.mark.parametrize("env", ["parity", "tests"])
def test_the_readmes_two_commands_name_environments_of_tox(env: str) -> None:
    assert f"    {COMMAND.format(env)}\n" in text_of("README.md")
    assert re.search(rf"^\[testenv:{env}\]$", text_of("tox.ini"), re.MULTILINE)


@pytest.mark.dsocr_slow
def test_the_readmes_subject_passes_the_readmes_comparison(tmp_path: Path) -> None:
    """Save the file from the README's text, and run the README's command in the same folder."""
    readme = text_of("README.md")
    [example] = [block for block in blocks("README.md", "python") if "class MyOcr" in block]
    assert "Save this as `my_ocr.py`" in readme
    [command] = re.findall(r"^    dsocr (compare --subject=my_ocr:MyOcr)$", readme, re.MULTILINE)
    (tmp_path / "my_ocr.py").write_text(example, encoding="utf-8")
    run = (sys.executable, "-P", "-m", "pytest_dsocr", *shlex.split(command))
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "dsocr-out/dsocr.json").is_file()
