"""Makes checkpoints durable beside instances that go on: packs and writes them in a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from steelyard.core.durable import damaged
from steelyard.resident.channel import Message
from steelyard.resident.checkpointer import Checkpointer, Taken, undone
from steelyard.resident.manifest import Log
from steelyard.resident.operator import Attempt, State
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.wire import HEADER, Kind, WireError, batch_bytes, batch_from, encoded, frame, head

_NUMBER = 8
"""Bytes of a number in a message."""
_CAPTURED = "captured "

Tell = Callable[..., None]
"""Tells the coordinator of an event, with its details."""


class Keeper:
    """Writes what chains of one worker have taken, in the order in which they took it.

    Parameters
    ----------
    store, attempt
        Where, and for which attempt of the job.
    tell
        Tells the coordinator of what is durable.
    failed
        Called with what kept it from being so.
    """

    def __init__(
        self, store: SnapshotStore, attempt: Attempt, tell: Tell, failed: Callable[[BaseException], None]
    ) -> None:
        self._store, self._attempt, self._tell, self._failed = store, attempt, tell, failed
        self._waiting: queue.SimpleQueue[tuple[Checkpointer, Taken] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, whose: Checkpointer, taken: Taken) -> None:
        """Write this too; returns at once."""
        self._waiting.put((whose, taken))

    def stop(self, timeout: float) -> None:
        """Write no more than what is being written."""
        self._waiting.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while (found := self._waiting.get()) is not None:
                whose, taken = found
                self._write(taken, whose.cut)
                whose.durable += 1
        except BaseException as error:  # noqa: BLE001 - disks, sockets: the worker must hear of it
            self._failed(error)

    def _write(self, taken: Taken, cut: int) -> None:
        attempt = self._attempt.behind(cut)
        states = dict(taken.states)
        states[taken.head] |= {f"{_CAPTURED}{one}": packed_messages(some) for one, some in taken.captured.items()}
        files = {str(one): self._store.keep(one, taken.number, state, attempt) for one, state in states.items()}
        sent = {str(number): packed_messages(some) for number, some in taken.log.items() if some}
        log = self._store.keep(f"{taken.head} log", taken.number, sent, attempt) if sent else None
        self._tell(
            "checkpoint",
            cut=cut,
            chain=str(taken.head),
            number=taken.number,
            kind=taken.kind,
            for_round=taken.round,
            sent=list(taken.sent.items()),
            received=list(taken.received.items()),
            numbers={str(one): state["own"]["checkpoints"] for one, state in states.items()},
            files=files,
            log=log,
            spans=_spans(taken.log),
            captured=_spans(taken.captured),
            unlogged=list(taken.unlogged.items()),
            rows=taken.rows,
            waited=taken.waited,
            stood=taken.seconds,
            seconds=time.monotonic() - taken.at,
        )


def _spans(messages: Mapping[int, Sequence[Message]]) -> list[tuple[int, int, int]]:
    """(channel, number of the first, number of the last)."""
    return [(one, some[0].number, some[-1].number) for one, some in messages.items() if some]


def packed_messages(messages: Sequence[Message]) -> bytes:
    """Messages of one channel as bytes: a frame each, as on a socket."""
    parts: list[Any] = []
    for one in messages:
        payload: Any = b""
        if one.kind is Kind.DATA:
            payload = batch_bytes(one.value)
        elif one.value is not None:
            payload = int(one.value).to_bytes(_NUMBER, "big", signed=True)
        parts += [encoded(one.kind, 0, one.number, payload, one.mark), payload]
    return b"".join(parts)


def unpacked_messages(data: bytes, schema: pa.Schema) -> Iterator[Message]:
    """The messages that `packed_messages` was given, without notes; WireError where the bytes are none."""
    whole, at = memoryview(data), 0
    while at < len(whole):
        if len(whole) - at < HEADER:
            raise WireError(f"a message begins {len(whole) - at} bytes before the end, and its header has {HEADER}")
        start = head(whole[at : at + HEADER])
        found = frame(start, whole[at + HEADER : at + HEADER + start.body])
        at += HEADER + start.body
        value: Any = None
        if found.kind is Kind.DATA:
            value = batch_from(bytes(found.payload), schema)
        elif len(found.payload):
            value = int.from_bytes(found.payload, "big", signed=True)
        yield Message(found.kind, found.number, value, mark=found.note)


class Replay:
    """What was sent and not worked off when all went back: out of senders' logs, or out of the receivers' own states.

    Parameters
    ----------
    store
        Where logs are.
    logs
        The files of senders' logs, the oldest first, each with (channel, first, last) of what it has.
    deduplicates
        Whether messages are left out that were worked off before: logs are kept whole, from checkpoint to checkpoint.
    lossy
        Whether what was under way is lost, and nobody minds.
    """

    def __init__(self, store: SnapshotStore, logs: Sequence[Log], deduplicates: bool, lossy: bool) -> None:
        self._store, self._logs, self._deduplicates, self._lossy = store, logs, deduplicates, lossy
        self._read: dict[str, State] = {}

    def messages(
        self, channel: int, received: int, sent: int, state: Mapping[str, Any], schema: pa.Schema
    ) -> list[Message]:
        """Those of one channel, in order; StateError where one is missing."""
        found = list(unpacked_messages(state.get(f"{_CAPTURED}{channel}", b""), schema))
        have = found[-1].number if found else received
        first = have + 1 if found or self._deduplicates else 0
        for log in self._logs:  # also behind what the receiver has: it may have it of another protocol
            if any(number == channel and last > have for number, _, last in log.spans):
                if log.file.name not in self._read:
                    self._read[log.file.name] = self._store.load(log.file)
                logged = unpacked_messages(self._read[log.file.name][str(channel)], schema)
                found += [one for one in logged if one.number >= first]
        return self._whole(channel, received, sent, found)

    def _whole(self, channel: int, received: int, sent: int, found: list[Message]) -> list[Message]:
        numbers = [one.number for one in found if received < one.number <= sent]
        if numbers != list(range(received + 1, sent + 1)) and not self._lossy:
            raise damaged(
                self._store.path,
                f"has messages {numbers[:1]} to {numbers[-1:]} of channel {channel}, and those from {received + 1} to "
                f"{sent} were under way",
            )
        return [undone(one) for one in found if one.number <= sent]
