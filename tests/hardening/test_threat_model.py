"""The threat model names tests that exist."""

import re

from tests.checkout import CHECKOUT
from tests.markdown import table


def test_each_threat_is_held_by_a_test() -> None:
    held = [re.findall(r"`(tests/[\w/]+\.py)`", row[-1]) for row in table("docs/verdicts.md", "who")]
    assert len(held) > 8
    assert all(held)
    named = {file for files in held for file in files}
    assert {file for file in named if not (CHECKOUT / file).is_file()} == set()
    own = {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "tests/hardening").glob("test_*.py")}
    assert own - named == {"tests/hardening/test_threat_model.py"}
