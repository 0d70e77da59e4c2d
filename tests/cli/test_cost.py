"""``dsocr cost`` from the command line: on shipped pages, and without torch."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.pages.page_list import PAGES
from tests.contract.test_pdf import pdf_of
from tests.markdown import blocks

INVOICE = PAGES / "generated" / "invoice_016.png"
Cost = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cost(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cost:
    monkeypatch.chdir(tmp_path)

    def run(*words: Any) -> tuple[int, str, str]:
        status = main(["cost", *map(str, words)])
        message = capsys.readouterr()
        return status, message.out, message.err

    return run


def test_it_imports_no_torch(tmp_path: Path) -> None:
    """With a tokenizer as well."""
    code = (
        "import sys; from pytest_dsocr.cli.main import main\n"
        "status = main(['cost', 'dev-3', '--checkpoint=mini', '--json=a.json'])\n"
        "sys.exit(status or ' '.join({'torch', 'numpy', 'scipy', 'transformers'} & {*sys.modules}) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("pages           3, gundam\n")
    assert {path.name for path in tmp_path.iterdir()} == {"a.json"}


def test_the_prompt_has_as_many_tokens_as_the_inputs(cost: Cost) -> None:
    cost(INVOICE, "--checkpoint=mini", "--preset=gundam", "--prompt=ocr", "--json=cost.json")
    [page] = json.loads(Path("cost.json").read_text(encoding="utf-8"))["pages"]
    inputs = DEFAULT.prepare(INVOICE, "ocr", "gundam", resolve("mini").tokenizer)
    assert (page["prompt_tokens"], page["image_tokens"]) == (inputs.prompt_tokens, inputs.image_tokens)


def test_every_page_of_a_pdf_is_reported_and_bad_pages_are_left_out(cost: Cost) -> None:
    Path("two.pdf").write_bytes(pdf_of("red", "blue"))
    Path("notes.png").write_text("no page")
    status, out, err = cost("two.pdf", "notes.png", "--json", "cost.json")
    pages = json.loads(Path("cost.json").read_text(encoding="utf-8"))["pages"]
    assert [page["page_px"] for page in pages] == [[288, 144], [288, 144]]
    assert status == 10
    assert out.startswith("left out    notes.png cannot be read as an image")
    assert "pages           2, gundam\n" in out
    assert err == "dsocr: left out 1 page, as is said above; mend what is wrong with them\n"
    assert cost("notes.png")[::2] == (10, "dsocr: no page is left; name one that can be opened\n")


def test_it_says_what_its_page_says(cost: Cost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(INVOICE.parent)
    examples = blocks("docs/cost.md", "console")
    assert len(examples) == 2
    for example in examples:
        command, _, message = example.partition("\n")
        assert cost(*shlex.split(command)[3:]) == (0, message, "")


BAD = {
    "--device=h300": "the peaks of a device 'h300' are not known; give one of h200, ",
    "--dtype=int4": "--dtype=int4 is not known; give one of ",
    "--attention=fast": "--attention=fast is not known; give one of eager, sdpa, flash_attention_2",
    "--tokens=0": "--tokens=0 leaves nothing to decode; give at least 1",
    "--preset=huge": "there is no preset 'huge'",
    "--prompt=all": "the prompt 'all' has no <image>",
    "--checkpoint=nowhere": "'nowhere' is no checkpoint",
    "absent.png": "there is no page absent.png",
}


def test_bad_options_are_refused(cost: Cost) -> None:
    for word, message in BAD.items():
        status, out, err = cost(INVOICE, word)
        assert (status, out) == (10 if word in ("--checkpoint=nowhere", "absent.png") else 2, "")
        assert err.startswith(f"dsocr: {message}")
