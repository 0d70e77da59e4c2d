"""``dsocr demo`` finds its own mistake, proves it, and leaves a page with the places of the error."""

from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.report.document import finished
from pytest_dsocr.report.file import INDEX_NAME, read_result


@pytest.mark.dsocr_slow
def test_the_demo_proves_its_mistake_and_shows_its_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSOCR_EXPLAIN", raising=False)
    assert main(["demo", "--no-open", f"--out={tmp_path}"]) == 0
    assert str(tmp_path / INDEX_NAME) in capsys.readouterr().out
    result = finished(read_result(tmp_path), tmp_path)
    [cause] = result.causes
    assert cause.proven
    assert result.cases[0].mistakes == ["clip.positions-turned"]
    [description] = [case.described for case in result.cases]
    assert description is not None
    diagonal = [row[k] for k, row in enumerate(description.places[0].rows)]
    assert min(diagonal) < min(row[k - 1] for k, row in enumerate(description.places[0].rows) if k)
    assert "Places of the error in clip.page/0" in (tmp_path / INDEX_NAME).read_text(encoding="utf-8")
