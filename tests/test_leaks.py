"""A test that leaves its process changed fails itself."""

import sys

import pytest

LEAKS = """
    import os, signal, sys, threading

    def test_puts_another_in_place():
        sys.modules["torch.version"] = os

    def test_environment():
        os.environ["LEFT"] = "here"

    def test_signal():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def test_thread():
        threading.Thread(target=threading.main_thread().join, name="left").start()

    def test_processes_can_be_interrupted():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_nothing(monkeypatch, tmp_path):
        import wave
        (tmp_path / "of_a_test.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("LEFT", "not")
        import of_a_test
        del sys.modules["of_a_test"]
"""
DEAF = "import pytest, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.exit(pytest.main(sys.argv[1:]))"
"""Started as by ``nohup``."""
NAMED = {
    "puts_another_in_place": "torch.version",
    "environment": "LEFT",
    "signal": "the signal handlers: 15",
    "thread": "the threads that a process waits for: left",
}


@pytest.mark.dsocr_slow
def test_a_test_that_leaves_its_process_changed_fails_by_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=LEAKS)
    result = pytester.run(sys.executable, "-c", DEAF, "-p", "tests.conftest", "-p", "no:dsocr")
    result.assert_outcomes(passed=len(NAMED) + 2, errors=len(NAMED))
    for name, said in NAMED.items():
        result.stdout.re_match_lines_random([f".*ERROR at teardown of test_{name} .*"])
        result.stdout.fnmatch_lines_random([f"*{said}*"])
