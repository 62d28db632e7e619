"""Coordinated checkpoints: markers cut all channels at one point, aligned or overtaking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from steelyard.checkpoint.history import Wire
from steelyard.checkpoint.protocol import NOTHING, Beside, CheckpointProtocol, Place, Reaction, Rounds, require_interval
from steelyard.core import OptionError

PAPER = "Siachamis 2025, section 3; Carbone et al. 2015"


class Aligning(Beside):
    """Waits for the marker of every input: what is behind one is not processed before all have come."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._missing: set[int] = set()
        self._round = 0

    def on_round(self, number: int, now: float, plan: str) -> Reaction:
        """A source has nobody to wait for."""
        return Reaction(checkpoint=True)

    def on_marker(self, wire: int, number: int, now: float, plan: str) -> Reaction:
        """Hold this input back; with the last marker, take the checkpoint."""
        if number != self._round:
            self._round = number
            self._missing = {one.number for one in self.place.inputs}
        self._missing.discard(wire)
        return Reaction(block=bool(self._missing), checkpoint=not self._missing)


@dataclass(frozen=True)
class Coordinated(CheckpointProtocol):
    """Cut all channels with markers, and hold inputs back until the markers of all of them have come.

    Parameters
    ----------
    interval
        Seconds between the beginnings of two rounds.

    Examples
    --------
    >>> Coordinated().require(cyclic=True)
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: coordinated waits on a cycle for a marker that must first go through ...
    """

    interval: float = 5.0
    name: ClassVar[str] = "coordinated"
    paper: ClassVar[str] = PAPER
    markers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_interval(self.name, self.interval)

    def beside(self, place: Place) -> Beside:
        """Aligns markers."""
        return Aligning(place)

    def central(self, instances: Sequence[str], wires: Sequence[Wire]) -> Rounds:
        """Begins rounds."""
        return Rounds(instances, wires, self.interval)

    def require(self, cyclic: bool) -> None:
        """No cycles: an operator on one would wait for a marker that it sends itself."""
        if cyclic:
            raise OptionError(
                "coordinated waits on a cycle for a marker that must first go through the one who waits, and so for "
                "ever: take 'unaligned', 'uncoordinated' or 'communication_induced' for a dataflow with feedback"
            )


class Overtaking(Beside):
    """Takes its checkpoint at the first marker; what comes over other inputs before theirs is captured."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._round = 0

    def on_round(self, number: int, now: float, plan: str) -> Reaction:
        """A source has nothing to capture."""
        self._round = number
        return Reaction(checkpoint=True)

    def on_marker(self, wire: int, number: int, now: float, plan: str) -> Reaction:
        """The first one cuts; the others end what is captured."""
        if number <= self._round:  # of this round, or of one that was given up
            return NOTHING
        self._round = number
        return Reaction(checkpoint=True, capture=tuple(one.number for one in self.place.inputs if one.number != wire))


@dataclass(frozen=True)
class Unaligned(Coordinated):
    """Cut all channels with markers that overtake rows; what they overtake becomes part of the checkpoint.

    Nobody waits for anybody, also where rows wait in full queues; checkpoints are larger by what was under way. Flink
    offers the same.

    Parameters
    ----------
    interval
        Seconds between the beginnings of two rounds.
    """

    name: ClassVar[str] = "unaligned"
    paper: ClassVar[str] = "Chandy and Lamport 1985; Siachamis 2025 names it and does not test it"
    overtakes: ClassVar[bool] = True

    def beside(self, place: Place) -> Beside:
        """Captures what markers overtake."""
        return Overtaking(place)

    def require(self, cyclic: bool) -> None:
        """Any dataflow: nobody waits for a marker."""
