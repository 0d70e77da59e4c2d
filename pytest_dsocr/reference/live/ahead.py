"""A live reference that is asked about one case ahead: it works on the next while the subject works on this one."""

from __future__ import annotations

from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from threading import Thread

from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.live.process import GRACE_S
from pytest_dsocr.reference.live.reference import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError


class Ahead:
    """At most one answer that nobody has asked for yet; the reference itself is for one thread at a time.

    Args:
        reference: is asked.
    """

    def __init__(self, reference: LiveReference) -> None:
        self._reference = reference
        self._case: Case | None = None
        self._answer: Future[Observation] = Future()

    @property
    def live(self) -> LiveReference:
        """The reference, once it has nothing else to do."""
        with suppress(ReferenceFaultError):  # whoever asks about that case is told
            if self._case is not None:
                self._answer.result()
        return self._reference

    def begin(self, case: Case) -> None:
        """Have it work on ``case``, in a thread that ends with the process, whatever it waits for."""
        live, answer = self.live, Future[Observation]()
        placed = replace(case, page=case.page.absolute())  # the subject may go to another folder meanwhile
        self._case, self._answer = case, answer
        Thread(target=_ask, args=(live, placed, answer), name="dsocr-ahead", daemon=True).start()

    def observe(self, case: Case) -> Observation:
        """Give the answer that it works on, or ask now; raise as the reference does."""
        live, begun = self.live, self._case
        self._case = None
        return self._answer.result() if begun == case else live.observe(case)

    def close(self) -> None:
        """End the reference, also where it is at work."""
        if self._case is not None:
            self._reference.give_up()
            wait([self._answer], GRACE_S)
        self._reference.close()


def _ask(live: LiveReference, case: Case, answer: Future[Observation]) -> None:
    try:
        answer.set_result(live.observe(case))
    except BaseException as error:
        answer.set_exception(error)
