"""What goes out of an instance: the channels of an edge, and what decides between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from steelyard.core.weights import Weights
from steelyard.resident.channel import Outlet
from steelyard.resident.routing import ByCost, Distributor, Hearing
from steelyard.resident.wire import Kind

MAX_BATCH_BYTES = 16 << 20
"""Batches above this are cut before they are sent."""


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch, in parts that are not too large to be sent."""
    size = batch.nbytes
    rows = batch.num_rows if size <= MAX_BATCH_BYTES else max(1, batch.num_rows * MAX_BATCH_BYTES // size)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows or 1))


class Output:
    """One edge of an instance: its channels, and what decides between them."""

    def __init__(self, distributor: Distributor, outlets: Mapping[int, Outlet]) -> None:
        self.distributor = distributor
        self.outlets = outlets
        self._probed = -1

    def send(self, batch: pa.RecordBatch) -> None:
        """Each row to its instance."""
        for receiver, part, note in self.distributor.addressed(batch):
            self.outlets[receiver].send(Kind.DATA, part, note)

    def weigh(self, weights: Weights) -> None:
        """Deal rows out by what is given for its edge; to all alike where nothing is, or nothing that fits."""
        if not self.distributor.weighs:
            return
        channel = next(iter(self.outlets.values())).channel
        given = weights.get((channel.sender.operator, channel.receiver.operator), ())
        self.distributor.weigh(given if len(given) == len(self.outlets) else (1,) * len(self.outlets))

    def tell(self, kind: Kind, value: Any) -> None:
        """The same to every instance."""
        for outlet in self.outlets.values():
            outlet.send(kind, value)

    def cut(self) -> None:
        """Send no more: rows go through other channels from here on."""
        for outlet in self.outlets.values():
            outlet.close()

    def probe(self, came: int) -> None:
        """A probe to one of the instances, to another the next time; none goes round a cycle."""
        outlets = [outlet for outlet in self.outlets.values() if not outlet.channel.feedback]
        if outlets:
            self._probed = (self._probed + 1) % len(outlets)
            outlets[self._probed].send(Kind.PROBE, came)

    @property
    def by_cost(self) -> bool:
        """Whether rows go by what they cost."""
        return isinstance(self.distributor, ByCost)

    @property
    def sent(self) -> dict[int, int]:
        """By channel: messages sent."""
        return {outlet.channel.number: outlet.sent for outlet in self.outlets.values()}

    @property
    def reports(self) -> dict[int, int]:
        """By channel: reports of costs that came back."""
        return dict(self.distributor.received) if isinstance(self.distributor, Hearing) else {}

    @property
    def waited(self) -> float:
        """Seconds in which nobody had room."""
        return self.distributor.waited + sum(outlet.waited for outlet in self.outlets.values())

    def stop(self) -> None:
        """Wake a sender that waits; it gets a StoppedError."""
        self.distributor.stop()
        for outlet in self.outlets.values():
            outlet.stop()
