"""Other pages that a server reads at the same time: what it gives for a page must not depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from pytest_dsocr.adapters.chat import Chat
from pytest_dsocr.observation.level import SubjectFaultError


@contextmanager
def company(chat: Chat, bodies: Iterable[Mapping[str, Any]]) -> Iterator[None]:
    """Have the server answer these requests while the caller asks for another; what comes of them is not looked at.

    They are waited for, so that no page has more company than another, but where the page itself failed: a server that
    hangs may never answer them.
    """
    threads = [Thread(target=_ask, args=(chat, body), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def _ask(chat: Chat, body: Mapping[str, Any]) -> None:
    with suppress(SubjectFaultError):  # of a page that is judged it will be told
        chat.whole(body)
