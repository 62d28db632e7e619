"""Communication-induced checkpoints: own clocks, and a checkpoint wherever a message would make one useless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from steelyard.checkpoint.history import FORCED
from steelyard.checkpoint.protocol import Beside, Place
from steelyard.checkpoint.uncoordinated import OwnTimer, Uncoordinated
from steelyard.core import OptionError

RULES = ("hmnr", "bcs")
_NUMBER = np.dtype("<u4")
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Hmnr(OwnTimer):
    """The rule of Hélary, Mostéfaoui, Netzer and Raynal: what is known of all others travels with every message.

    Of every instance k, an instance has `ckpt[k]`, how many checkpoints of k it knows of; `taken[k]`, whether there is
    a checkpoint on a path of messages from the last of those to here; `greater[k]`, whether its clock is above all that
    it knows of k's; and `sent_to[k]`, whether it has sent to k since its own last checkpoint.
    """

    def __init__(self, place: Place, interval: float, clock: str = "") -> None:
        super().__init__(place, interval, clock)
        self._me = place.instances.index(place.instance)
        self._receiver = {wire.number: place.instances.index(wire.receiver) for wire in place.outputs}
        self.clock = 0
        self.ckpt = np.zeros(len(place.instances), _NUMBER)
        self._begin_interval()

    def _begin_interval(self) -> None:
        self.taken = np.ones(len(self.ckpt), bool)
        self.taken[self._me] = False
        self.greater = self.taken.copy()
        self.sent_to = np.zeros(len(self.ckpt), bool)

    def took(self, kind: str) -> None:
        """The clock goes on."""
        self._begin_interval()
        self.clock += 1
        self.ckpt[self._me] += 1

    def note(self, wire: int) -> bytes:
        """The clock, all that is known, and two flags for each instance."""
        self.sent_to[self._receiver[wire]] = True
        flags = np.packbits(np.concatenate([self.taken, self.greater]))
        return self.clock.to_bytes(4, "little") + self.ckpt.tobytes() + flags.tobytes()

    def _opened(self, note: bytes) -> tuple[int, Any, Flags, Flags]:
        """Clock, ckpt, taken and greater of a message."""
        several = len(self.ckpt)
        end = 4 + several * _NUMBER.itemsize
        flags = np.unpackbits(np.frombuffer(note, np.uint8, offset=end), count=2 * several).astype(bool)
        ckpt = np.frombuffer(note, _NUMBER, several, 4)
        return int.from_bytes(note[:4], "little"), ckpt, flags[:several], flags[several:]

    def before_message(self, wire: int, note: bytes) -> bool:
        """Whether the message would close a path through which one of the checkpoints becomes useless."""
        clock, ckpt, taken, greater = self._opened(note)
        behind = clock > self.clock and bool((self.sent_to & greater).any())
        return behind or bool(ckpt[self._me] == self.ckpt[self._me] and taken[self._me])

    def learn(self, wire: int, note: bytes) -> None:
        """What the sender knew is known from here on."""
        clock, ckpt, taken, greater = self._opened(note)
        me = self._me
        if clock > self.clock:
            self.clock = clock
            self.greater = greater.copy()
            self.greater[me] = False
        elif clock == self.clock:
            self.greater &= greater
        others = np.arange(len(ckpt)) != me
        newer, same = others & (ckpt > self.ckpt), others & (ckpt == self.ckpt)
        self.taken = np.where(newer, taken, self.taken | (same & taken))
        self.ckpt = np.where(newer, ckpt, self.ckpt).astype(_NUMBER)

    def state(self) -> dict[str, Any]:
        """Behind the checkpoint that it is part of: nothing has been sent since."""
        return {"clock": self.clock, "ckpt": self.ckpt.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As right behind that checkpoint."""
        self.clock = int(state.get("clock", 0))
        self.ckpt = np.array(state.get("ckpt", [0] * len(self.ckpt)), _NUMBER)
        self._begin_interval()


class Bcs(OwnTimer):
    """The rule of Briatico, Ciuffoletti and Simoncini: a message from a later interval forces a checkpoint."""

    def __init__(self, place: Place, interval: float, clock: str = "") -> None:
        super().__init__(place, interval, clock)
        self.clock = 0
        self._ahead = 0

    def note(self, wire: int) -> bytes:
        """The clock."""
        return self.clock.to_bytes(4, "little")

    def before_message(self, wire: int, note: bytes) -> bool:
        """Whether the sender is in a later interval."""
        self._ahead = int.from_bytes(note, "little")
        return self._ahead > self.clock

    def took(self, kind: str) -> None:
        """A checkpoint of its own begins the next interval; a forced one, that of the sender."""
        self.clock = self._ahead if kind == FORCED else self.clock + 1

    def state(self) -> dict[str, Any]:
        """The interval."""
        return {"clock": self.clock}

    def restore(self, state: Mapping[str, Any]) -> None:
        """That interval again."""
        self.clock = int(state.get("clock", 0))


@dataclass(frozen=True)
class CommunicationInduced(Uncoordinated):
    """Take checkpoints by own clocks, and further ones wherever a message would make one useless.

    Parameters
    ----------
    interval, intervals, logged, deduplicates, together
        As those of `uncoordinated`.
    rule
        `"hmnr"`, whose notes grow with the instances, or `"bcs"`, with notes of four bytes. Where checkpoints come at
        random moments `hmnr` forces fewer; where all timers are alike, `bcs` may.
    """

    rule: str = "hmnr"
    name: ClassVar[str] = "communication_induced"
    marks: ClassVar[bool] = True
    paper: ClassVar[str] = "Siachamis 2025, section 3; Hélary et al. 1999; Briatico et al. 1984"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in RULES:
            raise OptionError.unknown("rule of communication_induced", self.rule, RULES)

    def beside(self, place: Place) -> Beside:
        """Goes by a timer of its own, and by the notes of messages."""
        return (Hmnr if self.rule == "hmnr" else Bcs)(place, self.interval_of(place), self.clock_of(place))
