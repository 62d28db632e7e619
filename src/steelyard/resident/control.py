"""What workers and those who watch over them say to each other: JSON, looked at before anybody acts on it.

What a message must have is written as its fields' shapes: `int`, `float` (any number below 2^63), `str`, `bool`, `dict`
(an object that nobody looks into), `[shape]` for a list, `(shape, shape)` for one of two, `{str: shape}` for an object
with any names, `{"name": shape}` for one with these, `Maybe(shape)` for a value that may be null or left out.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from steelyard.resident.connection import Connection
from steelyard.resident.wire import Frame, Kind, WireError

MAX_CONTROL = 8 << 20
"""Bytes of a message."""
_LARGEST = 1 << 63

Shapes = Mapping[str, Mapping[str, Any]]
"""By name of a message: the shapes of its fields."""


class Maybe(NamedTuple):
    """A value that may be null or left out."""

    shape: Any


def fits(value: Any, shape: Any) -> bool:
    """Whether a value is of a shape.

    >>> fits({"a": [1, 2.5]}, {str: (int, float)}), fits({"a": 1}, {"a": int, "b": Maybe(str)}), fits(True, int)
    (True, True, False)
    """
    if isinstance(shape, Maybe):
        return value is None or fits(value, shape.shape)
    if shape in (int, float):
        number = isinstance(value, int | shape) and not isinstance(value, bool)
        return number and -_LARGEST <= value < _LARGEST
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(fits, value, shape))
    if isinstance(shape, dict) and isinstance(value, dict):
        named = dict.fromkeys(value, shape[str]) if str in shape else shape
        return all(fits(value.get(name), kind) for name, kind in named.items())
    return not isinstance(shape, dict) and isinstance(value, shape)


def message(frame: Frame, says: str, known: Shapes) -> dict[str, Any]:
    """The message of a frame, whose field `says` is its name; WireError where it is none of those that are known."""
    if frame.kind is not Kind.CONTROL or len(frame.payload) > MAX_CONTROL:
        raise WireError(f"a {frame.kind.name} frame of {len(frame.payload)} bytes came where a message was awaited")
    try:
        found = json.loads(bytes(frame.payload))
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message is no JSON: {error}") from error
    name = found.get(says) if isinstance(found, dict) else None
    if not isinstance(name, str) or name not in known:
        raise WireError(f"a message says {says}={str(name)[:40]!r}, which nobody knows here")
    for field, shape in known[name].items():
        if not fits(found.get(field), shape):
            raise WireError(f"message {name!r} has {field}={str(found.get(field))[:80]!r}, which cannot be")
    return dict(found)


def packed(says: str, name: str, what: Mapping[str, Any]) -> bytes:
    """A message as the payload of a frame."""
    return json.dumps({says: name, **what}).encode()


class Orders:
    """A worker's connection to the one who coordinates: orders come, and are told of what happens.

    A thread of its own reads them, so that a stop is heard while another order is being carried out.

    Parameters
    ----------
    connection
        To the coordinator.
    known
        What it may say.
    stopped
        Called, in that thread, with a stop that has come.
    lost
        The same with why nothing comes any more.
    """

    def __init__(
        self,
        connection: Connection,
        known: Shapes,
        stopped: Callable[[dict[str, Any]], None],
        lost: Callable[[str], None],
    ) -> None:
        self.connection, self._known, self._stopped, self._lost = connection, known, stopped, lost
        self._came: queue.SimpleQueue[dict[str, Any] | Frame | Exception] = queue.SimpleQueue()

    def listen(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                frame = self.connection.receive()
                if frame.kind is Kind.RESULT:
                    self._came.put(frame)
                    continue
                order = message(frame, "do", self._known)
                if order["do"] == "stop":
                    self._stopped(order)
                    self._came.put(order)
                    return
                self._came.put(order)
        except Exception as error:  # noqa: BLE001 - whoever waits for the next order gets it
            gone = isinstance(error, OSError)
            self._lost(f"the coordinator is gone: {error}" if gone else f"the coordinator was not understood: {error}")
            self._came.put(error)

    def next(self) -> dict[str, Any]:
        """The next order; OSError or WireError where none can come any more."""
        found = self._came.get()
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Frame):
            raise WireError("rows came where an order was awaited")
        return found

    def rows(self) -> Any:
        """The payload of rows that come behind an order."""
        found = self._came.get()
        if isinstance(found, Exception):
            raise found
        if not isinstance(found, Frame):
            raise WireError(f"an order to {found['do']} came where rows were awaited")
        return found.payload

    def tell(self, event: str, **what: Any) -> None:
        """Say what happened."""
        self.connection.send(Kind.CONTROL, payload=packed("event", event, what))
