"""Small changes to code: which there are, that a test notices them, and what is written of those that none notices."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ci.mutants.__main__ import KNOWN, PAGE, TARGETS
from ci.mutants.mutations import KINDS, Mutant, mutants, mutated
from ci.mutants.table import Known, page
from ci.mutants.trial import Outcome, Target
from ci.mutants.tried import Tried
from tests.checkout import CHECKOUT


def changes(folder: Path, code: str) -> list[tuple[str, str, str]]:
    (folder / "code.py").write_text(code, encoding="utf-8")
    return [(one.kind, one.old, one.new) for one in mutants(folder, "code.py")]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("a < b", [("comparison", "a < b", "a <= b")]),
        ("a < b <= c", [("comparison", "a < b <= c", f"a {x} b {y} c") for x, y in (("<=", "<="), ("<", "<"))]),
        ("a and b", [("and, or, not", "a and b", "a or b")]),
        ("not a", [("and, or, not", "not a", "a")]),
        ("a - b", [("arithmetic", "a - b", "a + b")]),
        ("-a", [("arithmetic", "-a", "a")]),
        ("a if b else c", [("condition", "b", "not b")]),
        ("[a for a in b if c]", [("condition", "c", "not c")]),
        ("a if b == c else d", [("comparison", "b == c", "b != c")]),
        ("a = 3, True", [("number", "3", "4"), ("number", "True", "False")]),
        ("a = 'one', 'two words', f'one{a}'", [("text", "'one'", "'oneXX'")]),
        ("if a:\n    b += c", [("condition", "a", "not a"), ("statement", "b += c", "pass")]),
        ("if a:\n    raise b", [("condition", "a", "not a"), ("statement", "raise b", "pass")]),
        ("def a():\n    return b", [("statement", "return b", "return None")]),
        ("def a():\n    return None", []),
        ("def a(b: 3 = c) -> 4:\n    'One.'", []),
        ("assert a < b", []),
        ("import a", []),
        ("@dataclass(frozen=True)\nclass A:\n    'One.'", []),
        ("a = 'one' + b", [("text", "'one'", "'oneXX'")]),
    ],
)
def test_the_changes_to_a_line(code: str, told: list[tuple[str, str, str]], tmp_path: Path) -> None:
    assert [one for one in changes(tmp_path, code) if one != ("statement", code, "pass")] == told


def test_every_mutant_of_a_file_has_a_name_of_its_own_and_changes_just_what_it_says() -> None:
    file = "pytest_dsocr/compare/boxes.py"
    found = mutants(CHECKOUT, file)
    assert len({one.key for one in found}) == len(found) > 100
    assert {one.kind for one in found} <= {*KINDS}
    unchanged = ast.unparse(ast.parse((CHECKOUT / file).read_text(encoding="utf-8"))).splitlines()
    for one in found[::9]:
        changed = ast.unparse(ast.fix_missing_locations(mutated(CHECKOUT, one))).splitlines()
        assert sum(a != b for a, b in zip(unchanged, changed, strict=True)) == 1, one.key
    assert {one.within for one in found if "regrouped" in one.within} == {"Pairs.regrouped"}


RULE = """
LIMIT = 3


def is_near(a, b):
    return abs(a - b) < LIMIT


def never_asked(a):
    return -a


def endless(a):
    while a > 0:
        a -= 1
    return "done"
"""
TESTS = """
import pytest

from rule import endless, is_near


@pytest.mark.parametrize("b", [4, 5])
def test_near(b):
    assert is_near(b, 6)


def test_far():
    assert not is_near(1, 4)


def test_end():
    assert endless(5) == "done"
"""
OUTCOMES = {
    "3 -> 4": "killed",
    "abs(a - b) < LIMIT -> abs(a - b) <= LIMIT": "killed",
    "a - b -> a + b": "killed",
    "return abs(a - b) < LIMIT -> return None": "killed",
    "-a -> a": "not run",
    "return -a -> return None": "not run",
    "a > 0 -> not a > 0": "survived",
    "a > 0 -> a >= 0": "survived",
    "0 -> 1": "survived",
    "a -= 1 -> pass": "killed",
    "1 -> 2": "survived",
    "return 'done' -> return None": "killed",
    "'done' -> 'doneXX'": "killed",
}
TRY = """
import json, sys
from pathlib import Path
from ci.mutants.mutations import mutants
from ci.mutants.trial import Target, try_all

root = Path(sys.argv[1])
sys.path.insert(0, str(root))
target = Target("rule", "rule.py", ("test_rule.py",))
told = {}
try_all(root, target, mutants(root, "rule.py"), lambda one, outcome: told.update({f"{one.old} -> {one.new}": outcome}))
print(json.dumps(told))
"""


def test_each_is_tried_with_the_tests_that_run_it(tmp_path: Path) -> None:
    """In a function, where a module is imported, without end, and where no test comes."""
    (tmp_path / "rule.py").write_text(RULE)
    (tmp_path / "test_rule.py").write_text(TESTS)
    (tmp_path / "suites" / "meta").mkdir(parents=True)
    (tmp_path / "conftest.py").write_text("")
    ran = subprocess.run([sys.executable, "-c", TRY, str(tmp_path)], cwd=CHECKOUT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == OUTCOMES


def test_a_module_is_imported_with_its_mutant() -> None:
    file = "pytest_dsocr/compare/signs.py"
    place = next(k for k, one in enumerate(mutants(CHECKOUT, file)) if one.new == "'cropsXX'")
    code = (
        "from pathlib import Path; from ci.mutants.mutations import mutants; from ci.mutants.planting import *; "
        f"import_mutated(Path('.').absolute(), mutants(Path('.'), {file!r})[{place}]); "
        "import pytest_dsocr.compare.signs as signs; print(signs.Sign.CROPS, signs.Sign.SHUFFLED)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True)
    assert ran.stdout == "cropsXX shuffled\n", ran.stderr


def test_a_run_goes_on_where_it_was_ended_and_tries_survivors_again_with_other_tests(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    tests = tmp_path / "test_rule.py"
    tests.write_text(TESTS)
    target = Target("rule", "rule.py", ("test_rule.py",))
    killed, survived, other = mutants(tmp_path, "rule.py")[:3]

    def reread() -> Tried:
        return Tried(tmp_path / "tried" / "kept.jsonl", tmp_path)

    tried = reread()
    tried.add(killed, target, Outcome.KILLED)
    tried.add(survived, target, Outcome.SURVIVED)
    decided = [reread().is_decided(one, target) for one in (killed, survived, other)]
    assert decided == [True, True, False]
    tests.write_text(TESTS + "# one test more\n")
    decided = [reread().is_decided(one, target) for one in (killed, survived, other)]
    assert decided == [True, False, False]
    (tmp_path / "rule.py").write_text(RULE + "# changed\n")
    assert [reread().outcome(one) for one in (killed, survived)] == [None, None]


def test_the_reasons_of_survivors_stay(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    found: list[tuple[Mutant, Outcome]] = [(one, Outcome.SURVIVED) for one in mutants(tmp_path, "rule.py")[:2]]
    first = Known({}, {}, {}, []).updated("rule", found, 9, as_before=True)
    assert [one.why for one in first.survivors] == ["", ""]
    told = json.loads(first.to_bytes())
    told["survivors"][0]["why"] = "of no consequence"
    (tmp_path / "known.json").write_text(json.dumps(told))
    found[1] = (found[1][0], Outcome.KILLED)
    known = Known.read(tmp_path / "known.json").updated("rule", found, 9)
    assert [one.why for one in known.survivors] == ["of no consequence"]
    assert "| rule | 9 | 2 | 0 of 2, 0.0% | 1 of 2, 50.0% | 1 |" in page(known)


def test_the_page_of_the_documentation_is_what_was_found() -> None:
    known = Known.read(KNOWN)
    assert {*known.now} == {one.name for one in TARGETS}
    assert all(one.why for one in known.survivors)
    assert PAGE.read_text(encoding="utf-8") == page(known)
