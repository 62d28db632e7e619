"""What a thread of instances is asked to do between two messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from steelyard.resident.channel import StoppedError

Whose = TypeVar("Whose")
Made = TypeVar("Made")


class Commands(Generic[Whose]):
    """Any thread may ask; one thread obeys.

    Parameters
    ----------
    wake
        Wakes that thread, where it waits.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._asked: deque[tuple[Whose, Callable[[], Any], Future[Any]]] = deque()
        self._closed = False

    def ask(self, whose: Whose, action: Callable[[], Made]) -> Future[Made]:
        """Have something done, for one of the instances that run in the thread."""
        answer: Future[Made] = Future()
        self._asked.append((whose, action, answer))
        if self._closed:  # or it ends just now, and cancels what it finds
            answer.cancel()
        self._wake()
        return answer

    def obey(self, failed: Callable[[Whose, BaseException], None]) -> None:
        """Do all that was asked; StoppedError where one of it failed, which `failed` is told of first."""
        while self._asked:
            whose, action, answer = self._asked.popleft()
            try:
                answer.set_result(action())
            except StoppedError as error:
                answer.set_exception(error)
                raise
            except BaseException as error:
                failed(whose, error)  # first: who waits for the answer does not know whose fault it is
                answer.set_exception(error)
                raise StoppedError("what was asked for failed") from error

    def close(self) -> None:
        """Nothing is done any more: whoever waits for it hears so."""
        self._closed = True  # first: whoever asks from now on cancels what it asks for
        while self._asked:
            self._asked.popleft()[-1].cancel()
