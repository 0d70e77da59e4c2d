"""The suite of servers on a real one: right of it right, and each of thirty mistakes found by the checks that say so."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.goldens import shipped_folder
from pytest_dsocr.reference.recording import RecordedReference, Recording
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from suites.server.asked import Asked
from suites.server.test_server import CHECKS
from tests.adapters import mistakes
from tests.adapters.conftest import serving

QUICK: Mapping[str, str] = {}
