"""What goes out of an instance: the channels of an edge, and what decides between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from steelyard.resident.channel import Outlet
from steelyard.resident.routing import ByCost, Distributor
from steelyard.resident.wire import Kind


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

    def tell(self, kind: Kind, value: Any) -> None:
        """The same to every instance."""
        for outlet in self.outlets.values():
            outlet.send(kind, value)

    def probe(self, came: int) -> None:
        """A probe to one of the instances, to another the next time; none goes round a cycle."""
        outlets = [outlet for outlet in self.outlets.values() if not outlet.channel.feedback]
        if outlets:
            self._probed = (self._probed + 1) % len(outlets)
            outlets[self._probed].send(Kind.PROBE, came)

    @property
    def sent(self) -> dict[int, int]:
        """By channel: messages sent."""
        return {outlet.channel.number: outlet.sent for outlet in self.outlets.values()}

    @property
    def heard(self) -> dict[int, int]:
        """By channel: reports of costs that came back."""
        return dict(self.distributor.received) if isinstance(self.distributor, ByCost) else {}

    @property
    def waited(self) -> float:
        """Seconds in which nobody had room."""
        return self.distributor.waited + sum(outlet.waited for outlet in self.outlets.values())

    def stop(self) -> None:
        """Wake a sender that waits; it gets a StoppedError."""
        self.distributor.stop()
        for outlet in self.outlets.values():
            outlet.stop()
