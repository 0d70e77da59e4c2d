"""Fixtures of the rooms that are attacked: a made-up repository, and a case with the engine's answer."""

from tests.plugin.conftest import _without_the_unneeded as _without_the_unneeded
from tests.plugin.conftest import repository as repository
from tests.subjects.conftest import case as case
from tests.subjects.conftest import expected as expected
from tests.subjects.conftest import pages as pages
