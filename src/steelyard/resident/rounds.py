"""What the rows of a router cost the instances that it sent them to, round by round, for routers that observe it.

A round begins with the first batch after the router has observed the last one. Its messages carry the round's number
as their note; the instance that has worked one off reports through the same channel, against its direction, how long
that took. When a round is full and all of it is worked off, it is over. Messages meanwhile are of no round.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.core.control import BatchObservation
from steelyard.core.counts import Ints
from steelyard.resident.channel import Message
from steelyard.resident.wire import WireError

ROUND_BATCHES, ROUND_SECONDS = 32, 0.25
"""A round has at most so many batches of its sender, and takes no longer than this to send."""
_ROUND = struct.Struct("!I")
_REPORT = struct.Struct("!IId")
"""Round, messages, seconds."""


class Rounds:
    """The round that a router is in, as far as instances have told of it. One thread sends; others bring reports.

    Parameters
    ----------
    receivers, senders
        How many instances there are, and how many routers that send to them.
    """

    def __init__(self, receivers: int, senders: int = 1) -> None:
        self._receivers, self._senders = receivers, senders
        self._lock = threading.Lock()
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        with self._lock:  # reports of a round before are not for this one
            self._number += 1
            self._awaited = 0
            self._seconds = [0.0] * self._receivers
        self._began, self._batches = 0.0, 0
        self._rows, self._clusters = [0] * self._receivers, [0] * self._receivers
        self._splitting = self._sending = 0.0

    def over(self) -> BatchObservation | None:
        """What the round has cost, if it is over: the next one begins."""
        if self._is_open or not self._batches or self._awaited:
            return None
        longest = max(self._seconds)
        beside = self._splitting + max(0.0, self._sending - longest)
        found = self._rows, self._clusters, self._seconds
        seen = BatchObservation.of_edge(self._number, *found, beside, self._senders)
        self._begin()
        return seen

    @property
    def _is_open(self) -> bool:
        late = self._batches and time.monotonic() - self._began > ROUND_SECONDS
        return self._batches < ROUND_BATCHES and not late

    def note(self, keys: Ints, chosen: np.ndarray[Any, np.dtype[np.int32]]) -> bytes:
        """What the messages of a batch carry, whose rows have these keys and go to these instances."""
        if not self._is_open or not len(keys):
            return b""
        from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - loads a compiler

        self._began = self._began or time.monotonic()
        self._batches += 1
        pairs = np.unique(number_keys(keys)[2].astype(np.int64) * self._receivers + chosen)
        sizes = np.bincount(chosen, minlength=self._receivers).tolist()
        clusters = np.bincount(pairs % self._receivers, minlength=self._receivers).tolist()
        for receiver in range(self._receivers):
            self._rows[receiver] += sizes[receiver]
            self._clusters[receiver] += clusters[receiver]
        with self._lock:
            self._awaited += sum(size > 0 for size in sizes)
        return _ROUND.pack(self._number)

    def spent(self, splitting: float, sending: float) -> None:
        """A batch of the round took so long to be split up, and to be sent."""
        self._splitting += splitting
        self._sending += sending

    def hear(self, receiver: int, payload: Any) -> None:
        """An instance has worked off messages; WireError where that is none of what was sent to it."""
        try:
            number, messages, seconds = _REPORT.unpack(payload)
        except struct.error as error:
            raise WireError(f"a report of {len(payload)} bytes tells of no round") from error
        with self._lock:
            if number == self._number:
                if not 0 < messages <= self._awaited or not 0.0 <= seconds < math.inf:
                    raise WireError(
                        f"{messages} messages of round {number} in {seconds} s, and {self._awaited} are out"
                    )
                self._awaited -= messages
                self._seconds[receiver] += seconds


class RoundMeter:
    """Tells senders what rows took that came through their channels, where these carry the number of a round.

    Parameters
    ----------
    tell
        By channel: brings a numbered payload to its sender.
    """

    def __init__(self, tell: Mapping[int, Callable[[int, bytes], None]]) -> None:
        self._tell = tell
        self.reported = dict.fromkeys(tell, 0)
        """By channel: reports so far."""

    def executed(self, channel: int, messages: Sequence[Message], seconds: float) -> None:
        """Messages of a channel have been worked off together; each took its share by its rows."""
        rows = sum(one.value.num_rows for one in messages)
        found: dict[bytes, tuple[int, float]] = {}
        for one in messages:
            if one.note:
                count, spent = found.get(one.note, (0, 0.0))
                found[one.note] = count + 1, spent + seconds * one.value.num_rows / max(rows, 1)
        for note, (count, spent) in found.items():
            if len(note) != _ROUND.size:
                raise WireError(f"a note of {len(note)} bytes is no number of a round")
            self.reported[channel] += 1
            self._tell[channel](self.reported[channel], _REPORT.pack(*_ROUND.unpack(note), count, spent))

    def state(self) -> bytes:
        """Nothing: when a snapshot is taken, all is reported."""
        return b""

    def restore(self, state: bytes) -> None:
        """Nothing is kept."""
