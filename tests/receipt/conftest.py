"""The result of a run with stand-ins for both sides, in a user's repository."""

from tests.plugin.conftest import _without_the_unneeded, repository

__all__ = ["_without_the_unneeded", "repository"]
