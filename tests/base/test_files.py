"""The layout of sealed files, which recordings hold, files that are written whole, and the commit of a folder."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import locked, seal, unseal, write_whole
from pytest_dsocr.base.process import commit_here
from tests.checkout import CHECKOUT, git


def test_recordings_are_laid_out_as_they_lie_there_to_the_byte() -> None:
    recorded = [path.read_bytes() for path in (CHECKOUT / "golden/vendor").glob("*/cpu-*-eager/*.json")]
    contents = [unseal(data) for data in recorded]
    assert [seal({name: one for name, one in content.items() if name != "sha256"}) for content in contents] == recorded
    assert any(not data.isascii() for data in recorded)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:-1], "its end is missing"),
        (lambda data: data.replace(b"1", b"2", 1), "does not have the SHA-256"),
        (lambda _: seal({"a": -(10**400)}), "308 digits are the most"),
    ],
)
def test_damage_is_reported(damage: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unseal(damage(seal({"a": 1})))


def test_a_file_that_the_disk_does_not_take_is_an_error_and_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    (tmp_path / "a.json.partial").mkdir()
    with pytest.raises(DsocrError, match=r"a\.json cannot be written \(Is a directory\); make room"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("name", ["a.json", "a.json.partial", "lock"])
def test_a_link_that_was_planted_is_not_written_through(name: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / name).symlink_to(victim)
    write_whole(tmp_path / "a.json", b"new")
    with suppress(DsocrError), locked(tmp_path / "lock"):
        pass
    assert (victim.read_bytes(), (tmp_path / "a.json").read_bytes()) == (b"mine", b"new")


def test_a_commit_has_all_its_digits_and_says_whether_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_here() is None
    (tmp_path / "file").write_text("one", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "-a", "v1", "-m", "one"]):
        git(*command)
    (tmp_path / "another").write_text("two", encoding="utf-8")
    assert commit_here() == git("rev-parse", "HEAD"), "what git does not know is no part of it"
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert commit_here() == f"{git('rev-parse', 'HEAD')}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_here() is None
