"""``dsocr compare`` as a user runs it: its status is 0 only if the result passes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.compare import MEMORY_KEPT, words_of
from pytest_dsocr.cli.main import parser
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.report.file import UNFINISHED, read_result
from pytest_dsocr.report.words import ON_REQUEST, suites
from tests.processes import finished

SUBJECTS = """
    import time
    from pathlib import Path

    class Waits:
        def read(self, page, **how):
            Path("waits").touch()
            time.sleep(600)
"""
[PAGE] = (str(page) for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
TEXT_ALONE = ("--", "-k", "test_text", "-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _elsewhere(unset: None, pytester: pytest.Pytester) -> None:
    """Run in a folder with subjects, without options in the environment."""
    pytester.makepyfile(mine=SUBJECTS)


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest_dsocr", "compare", *arguments]


@pytest.mark.dsocr_slow
def test_an_engine_like_the_vendors_ends_in_0_with_the_plugins_own_result(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the README's command in a clone, where the installed package runs and not the clone's.

    Memory is kept unless the user decides otherwise, and waiting threads sleep.
    """
    [[name, kept], [other, _]] = MEMORY_KEPT.items()
    names = (name, other, "OMP_WAIT_POLICY")
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(other, "131072")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    pytester.mkpydir("pytest_dsocr").joinpath("__init__.py").write_text("raise ImportError('not the installed one')")
    pytester.makepyfile(noted=f"import os\nopen('set', 'w').write(' '.join(map(os.environ.get, {names!r})))")
    asked = [PAGE, "--out=mine", *TEXT_ALONE, "-p", "noted"]
    pythonpath = os.pathsep.join((os.environ["PYTHONPATH"], str(pytester.mkdir("plugins"))))
    Path("noted.py").rename("plugins/noted.py")
    monkeypatch.setenv("PYTHONPATH", pythonpath)
    done = finished(sys.executable, "-P", "-m", "pytest_dsocr", "compare", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict         passes, " in done.stdout
    result = read_result(Path("mine"))
    assert (result["passes"], result["comparisons"], len(result["cases"])) == (True, 2, 1)
    assert result["run"]["pages"] == [PAGE]
    assert result["cases"][0]["cost"].keys() == {"flops", "moved_bytes", "cache_bytes", "activation_bytes"}
    assert all(value > 0 for value in result["cases"][0]["cost"].values())
    assert Path("set").read_text(encoding="utf-8") == f"{kept} 131072 PASSIVE"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("options", [TEXT_ALONE, ("--isolate", *TEXT_ALONE), (*TEXT_ALONE, "-n2")])
def test_what_ends_the_command_ends_pytest_and_is_no_pass(number: signal.Signals, options: tuple[str, ...]) -> None:
    """A terminal sends its interrupt to the whole group of processes."""
    asked = [PAGE, "--subject=mine:Waits", *options]
    process = subprocess.Popen(command(asked), stdout=subprocess.PIPE, start_new_session=True)
    while not Path("waits").exists():
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    process.communicate()
    assert process.returncode not in (0, None)
    if number == signal.SIGINT:
        assert "the run was interrupted" in read_result(Path("dsocr-out"))["verdict"]
    else:
        assert process.returncode == 128 + signal.SIGTERM
        with pytest.raises(DsocrError, match=UNFINISHED):
            read_result(Path("dsocr-out"))


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--level=L9",), 4, "ERROR: --dsocr-level: 'L9' is not a level; give L0 (text), "),
        (("--out=mine.py/out",), 2, "mine.py/out cannot be made (Not a directory)"),
        (("--", "--dsocr-out=there"), 2, "--dsocr-out comes after --; give --out before it"),
    ],
)
def test_what_cannot_be_compared_has_pytests_status_and_says_why(
    arguments: Sequence[str], status: int, message: str
) -> None:
    done = finished(*command([PAGE, *arguments]))
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr


def test_every_option_of_the_plugin_is_offered_by_both_names_and_handed_on(tmp_path: Path) -> None:
    """Pass every option twice; the last value counts for an option with one value."""
    switches = [option.flag.replace("dsocr-", "") for option in OPTIONS if option.is_switch]
    valued = [option.flag for option in OPTIONS if not option.is_switch]
    given = [word for flag in valued for word in (f"{flag}=1", f"{flag.replace('dsocr-', '')}=2")]
    options = parser(["compare"]).parse_args(["compare", str(tmp_path), *switches, *given])
    expected = [f"--dsocr-pages={tmp_path}"]
    for option in OPTIONS:
        both = [f"{option.flag}={value}" for value in ((1, 2) if option.many else (2,))]
        expected += [option.flag] if option.is_switch else both if option.name != "out" else []
    assert [*words_of(options)] == expected


def test_the_suites_are_found_wherever_it_is_called() -> None:
    """List the suites in order, without the project's own tests and the suites that measure."""
    found = suites(ON_REQUEST)
    names = [Path(path).name for path in found]
    assert [name.removeprefix("pytest_dsocr.suites.") for name in names if name != "--pyargs"] == [
        *("parity", "cache", "checkpoint", "contract", "reference", "server")
    ]
