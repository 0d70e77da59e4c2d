"""The script of a night: its commands are those of the command line, each part is run whatever the others found."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import parser
from tests.checkout import CHECKOUT

COMMAND = """#!/bin/sh
echo "dsocr $*"
for word; do case $word in --out=*) name=${word#--out=out/} ;; esac; done
[ "$1" != compare ] || { mkdir "out/$name" && touch "out/$name/dsocr.json"; }
for one in $STATUSES; do
  [ "${one%=*}" != "${name:-$1}" ] || { [ "${one#*=}" != late ] || { kill -ALRM $PPID; sleep 60; }; exit "${one#*=}"; }
done
"""
"""Stand-in for ``dsocr``: print the arguments and end with the wanted status; ``late`` exceeds the time limit."""


@pytest.mark.skipif(not shutil.which("timeout"), reason="needs timeout of GNU coreutils")
@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ("", 0),
        ("perf=11", 11),
        ("pages-1=11 cost=11", 11),
        ("doctor=1", 10),
        ("doctor=1 perf=11", 10),
        ("perf=11 cost=10", 10),
        ("pages-2=late", 10),
        ("pages-1=1 live=10 perf=11", 1),
        ("pages-1=137 live=1", 1),
        ("history=2", 10),
        ("perf=11 history=10", 10),
        ("live=1 history=2", 1),
    ],
)
def test_every_part_is_run_and_the_gravest_status_counts(statuses: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "dsocr").write_text(COMMAND, encoding="utf-8")
    (tmp_path / "dsocr").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", CHECKOUT / "ci/nightly/nightly.sh", "out", "nights", "--no-skip"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "STATUSES": statuses, "VENDOR": "vendor", "SHARDS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    commands = [line for line in done.stdout.splitlines() if line.startswith("dsocr ")]
    for command in commands:
        words = command.split()[1:]
        parser(words).parse_args(words[: words.index("--")] if "--" in words else words)
    outs = [re.findall(r" --out=out/(\S+)", command) for command in commands]
    assert outs == [[], ["pages-1"], ["pages-2"], ["live"], ["perf"], ["cost"], []]
    added = re.findall(r" --add=out/(\S+)/", commands[-1])
    assert sorted(added) == ["cost", "live", "pages-1", "pages-2", "perf"]
    assert done.returncode == status, done.stdout + done.stderr
