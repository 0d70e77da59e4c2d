"""A plugin for pytest: tests in another order than their files', by ``--order``.

``alone`` runs each as if it were the only one: session fixtures end with it, and what functions of this project
remember is forgotten. Of each function the last test is enough: its others differ in data only, and come before it.
``backwards`` runs the last first: with the order of the files, in which every other run has them, each test has then
been both before and after each other.
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Iterable, Iterator

import pytest
from _pytest.runner import runtestprotocol

ALONE, BACKWARDS = "alone", "backwards"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", required=True, choices=(ALONE, BACKWARDS), help="in which order tests run")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.order == ALONE:
        items[:] = last_of_each(items)
    else:
        items.reverse()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    if item.config.option.order != ALONE:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    runtestprotocol(item, nextitem=None)  # as the last of a session: every fixture ends
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    for remembering in caches():
        remembering.cache_clear()
    return True


def last_of_each(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    for _, group in itertools.groupby(items, lambda item: item.nodeid.partition("[")[0]):
        yield [*group][-1]


def caches() -> list[functools._lru_cache_wrapper[object]]:
    found = [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]
    return [one for one in found if one.__module__.startswith(("pytest_dsocr", "suites"))]
