"""Receipts of real runs, and what their check says after a part was changed."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import sha256
from pytest_dsocr.base.own_files import own_files, own_sha256
from pytest_dsocr.cli.main import main
from pytest_dsocr.receipt.markdown import markdown
from pytest_dsocr.receipt.receipt import MARKDOWN_NAME, RECEIPT_NAME, Receipt, receipt_of, sealed, write_receipt
from pytest_dsocr.receipt.rerun import arguments, compared
from pytest_dsocr.receipt.schemas import schemas
from pytest_dsocr.receipt.verify import verify
from pytest_dsocr.records.source import source_of
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.goldens import shipped_folder
from pytest_dsocr.report.document import Looser
from pytest_dsocr.report.words import suites_folder
from tests.checkout import CHECKOUT
from tests.plugin.conftest import TWO, Repository

Change = Callable[[Receipt], Receipt]
OUT = Path("out")


def receipt(repository: Repository, subject: str) -> Receipt:
    """Run a stand-in without a search for explanations, and write the receipt, as of a clean checkout."""
    repository.settle(subject)
    repository.run(TWO, "--dsocr-out=out", "--dsocr-explain=0")
    made = write_receipt(OUT)
    files = read_json(shipped_folder() / "vendor" / "anchors.json").files
    known = {name: one.sha256 for name, one in files.items()}
    made = of_provenance(made, vendor_sha256=known)
    return replace(made, tool=replace(made.tool, changed=[]))


def of_sides(made: Receipt, **changes: Any) -> Receipt:
    return replace(made, sides=replace(made.sides, **changes))


def of_provenance(made: Receipt, **changes: Any) -> Receipt:
    return of_sides(made, provenance=dataclasses.replace(made.sides.provenance, **changes))


def of_limits(made: Receipt, *, same_key: bool = True, **allowed: float) -> Receipt:
    [used] = made.limits
    return replace(made, limits=[replace(used, same_key=same_key, allowed={**used.allowed, **allowed})])


def marks(made: Receipt) -> Mapping[str, list[str]]:
    """Return the marks of the checks of a receipt, sealed again as a forger would."""
    found: dict[str, list[str]] = {}
    path = Path("apart") / RECEIPT_NAME
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(sealed(made))
    for mark, what, _ in verify(path):
        found.setdefault(what, []).append(str(mark))
    return found


def test_a_passing_run_is_certified_and_each_change_is_found(repository: Repository) -> None:
    made = receipt(repository, "Reader")
    assert (made.passes, made.sides.subject, made.sides.level) == (True, "standin:Reader", "L0")
    assert (made.stages, made.counts["MATCH"]) == ({"postprocess": {"MATCH": 2}}, 2)
    assert made.tool.files_sha256 == own_sha256()
    right = marks(made)
    known = ("digest", "verdict", "stages", "limits", "tool", "vendor", "checkpoint")
    assert {name: right[name] for name in known} == {name: ["ok"] for name in known}
    assert right["result"] == right["goldens"] == right["rerun"] == ["open"]
    [used] = made.limits
    changed: list[tuple[str, Change, str]] = [
        ("counts", lambda one: replace(one, counts={"MATCH": 3}), "NO"),
        ("verdict", lambda one: replace(one, cases=[replace(one.cases[0], passes=False)]), "NO"),
        ("verdict", lambda one: replace(one, counts={}, stages={}), "NO"),
        ("stages", lambda one: replace(one, counts={"MATCH": 2}, stages={"decode": {"MATCH": 2}}), "NO"),
        ("stages", lambda one: of_sides(one, level="L2"), "NO"),
        ("left out", lambda one: replace(one, left_out=["1 of 3 tests by -k"]), "NO"),
        ("limits", lambda one: of_limits(one, text=0.5), "NO"),
        ("limits", lambda one: of_limits(one, same_key=False), "NO"),
        ("limits", lambda one: replace(one, limits=[]), "NO"),
        ("limits", lambda one: replace(one, looser={"text": Looser(1, 0, "", 1)}), "NO"),
        ("tool", lambda one: replace(one, tool=replace(one.tool, files_sha256="0" * 64)), "NO"),
        ("tool", lambda one: replace(one, tool=replace(one.tool, changed=["pytest_dsocr/compare/boxes.py"])), "NO"),
        ("tool", lambda one: replace(one, tool=replace(one.tool, version="99")), "open"),
        ("vendor", lambda one: of_provenance(one, vendor_sha256={"deepencoder.py": "0"}), "NO"),
        ("goldens", lambda one: of_sides(one, recording_sha256="0" * 64), "NO"),
        ("checkpoint", lambda one: of_provenance(one, checkpoint_sha256="0" * 64), "NO"),
    ]
    for what, change, mark in changed:
        assert marks(change(made))[what][0] == mark, (what, change(made))
    assert used.allowed["text"] == 0, "so that more is looser"
    assert {mark for mark, _ in compared(made, made)} == {"ok"}
    other = replace(made, counts={"WRONG": 1}, verdict="1 of 2 tests failed")
    assert [mark for mark, _ in compared(made, other)] == ["NO", "NO", "ok", "ok"]
    command = ["dsocr", "compare", "page.png", "--tests=suites/parity/test_case.py", "--", "-k", "text"]
    tests = f"--tests={suites_folder() / 'parity/test_case.py'}"
    assert arguments(replace(made, reproduce=command), "o") == ["page.png", tests, "--out=o", "--", "-k", "text"]


def test_a_file_that_was_edited_and_a_result_that_was_replaced_are_found(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check a failing run's receipt from the command line."""
    made, path = receipt(repository, "Misreader"), OUT / RECEIPT_NAME
    assert (made.passes, made.counts["WRONG"], len(made.causes)) == (False, 1, 1)
    [cause] = made.causes
    assert cause.found.what == "text"
    assert {*cause.reproducer_sha256} == {f"reproducers/text/{name}" for name in ("data.npz", "reproduce.py")}
    page = (OUT / MARKDOWN_NAME).read_text(encoding="utf-8")
    assert receipt_of(OUT).sha256 in page
    assert "**Cause 1** text in 1 of 1 page: " in page
    raised = replace(
        cause, found=replace(cause.found, cases=[], what="tokenizer", tests=["test_case.py::test_text[a]"])
    )
    assert r"**Cause 1** tokenizer of test\_case.py::test\_text: " in markdown(replace(made, causes=[raised]))
    assert marks_of(path) >= {("ok", "result"), ("ok", "digest"), ("ok", "reproducer")}
    (OUT / "reproducers/text/reproduce.py").write_text("print('right')", encoding="utf-8")
    assert ("NO", "reproducer") in marks_of(path)
    forged = replace(made, passes=True, verdict="passes", sha256="")
    path.write_bytes(sealed(forged))
    assert {("ok", "digest"), ("NO", "verdict"), ("NO", "result")} <= marks_of(path)
    path.write_bytes(path.read_bytes().replace(b"Misreader", b"Reader"))
    assert {("NO", "digest"), ("NO", "verdict")} <= marks_of(path)
    capsys.readouterr()
    assert main(["receipt", "--verify", str(path)]) == 1
    assert capsys.readouterr().out.startswith("NO   digest")
    whole = json.loads((OUT / "dsocr.json").read_text(encoding="utf-8"))
    later = {"what": "sam.page/0", "explained": "with the GELU by tanh", "proven": True, "mistakes": ["SAM-08"]}
    whole["causes"][0]["further"] = [later]
    (OUT / "dsocr.json").write_text(json.dumps(whole), encoding="utf-8")
    assert ("NO", "result") in marks_of(path)
    (script := OUT / "reproducers/sam/reproduce.py").parent.mkdir()
    script.write_text("print('wrong')", encoding="utf-8")
    [cause] = write_receipt(OUT).causes
    assert "reproducers/sam/reproduce.py" in cause.reproducer_sha256


def marks_of(path: Path) -> set[tuple[str, str]]:
    return {(str(mark), what) for mark, what, _ in verify(path)}


def test_a_real_result_and_receipt_fit_the_published_schemas(repository: Repository) -> None:
    receipt(repository, "Misreader")
    published = {path.name: path.read_text(encoding="utf-8") for path in (CHECKOUT / "docs/schemas").iterdir()}
    assert unlike(published, schemas()) == [], "write them again: dsocr receipt --schemas docs/schemas"
    for name, file in (("dsocr.schema.json", "dsocr.json"), ("receipt.schema.json", RECEIPT_NAME)):
        valid = jsonschema.Draft202012Validator(json.loads(published[name]))
        whole = json.loads((OUT / file).read_text(encoding="utf-8"))
        valid.validate(whole)
        without = {field: {key: value for key, value in whole.items() if key != field} for field in whole}
        assert [field for field, less in without.items() if valid.is_valid(less)] == []
    del (old := json.loads((OUT / "dsocr.json").read_text(encoding="utf-8")))["tool_sha256"]
    (OUT / "dsocr.json").write_text(json.dumps(old), encoding="utf-8")
    with pytest.raises(DsocrError, match="tool_sha256"):
        receipt_of(OUT)


def unlike(published: Mapping[str, str], made: Mapping[str, str]) -> list[str]:
    """Return the names of schemas that differ. Keywords that a newer msgspec adds to all of them are no difference."""
    known = {*re.findall(r'"([^"]+)":', "".join(published.values()))}

    def kept(one: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in one.items() if key in known}

    read = {name: json.loads(text, object_hook=kept) for name, text in made.items()}
    return [name for name in {**published, **read} if json.loads(published.get(name, "null")) != read.get(name)]


def test_the_hash_of_the_tool_depends_on_each_file() -> None:
    files = own_files()
    assert {"pytest_dsocr/compare/tolerances.py", "suites/parity/test_case.py"} <= {*files}
    lines = "".join(f"{name} {sha256(path.read_bytes())}\n" for name, path in files.items())
    assert own_sha256() == sha256(lines.encode())


def test_the_source_of_a_subject_is_what_its_name_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "run.sh").touch()
    monkeypatch.chdir(tmp_path)
    found = {name: source_of(name) for name in ("engine", "mine:Port", "cli:bash run.sh", "http://host/v1?model=a")}
    assert [one.name for one in found.values()] == ["pytest-dsocr", "mine", "run", ""]
    assert source_of("torch:nn").version is not None
    assert source_of(f"vendor:{CHECKOUT / 'docs'}").commit == source_of(f"dump:{CHECKOUT / 'ci'}").commit
