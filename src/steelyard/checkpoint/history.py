"""Checkpoints of instances, and what each of them knows of the messages that went before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

INITIAL, LOCAL, FORCED, ROUND = "initial", "local", "forced", "round"
"""Why a checkpoint was taken: the beginning, its own timer, a message that made it necessary, a round of all."""


class Wire(NamedTuple):
    """A channel, seen from a protocol: messages of one instance to another, numbered from 1, in order."""

    number: int
    sender: str
    receiver: str


@dataclass(frozen=True)
class Checkpoint:
    """The state of one instance, as far as a protocol needs to know it.

    Parameters
    ----------
    instance, number
        Whose it is, and which of its checkpoints, from 0, the beginning.
    sent, received
        By wire: the number of the last message that was sent, or processed, before it.
    kind
        Why it was taken.
    round
        Which round of all instances it belongs to; 0 for none.
    unlogged
        By wire: the number of the last message before it that is in no log; only where some are kept and some are not.
    rows
        How many the instance had processed since it began: what tells whether all of an operator have as much to do.
    waited
        What `Beside.waited` was.
    """

    instance: str
    number: int
    sent: Mapping[int, int] = field(default_factory=dict)
    received: Mapping[int, int] = field(default_factory=dict)
    kind: str = LOCAL
    round: int = 0
    unlogged: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0
    waited: float = -1.0

    def __str__(self) -> str:
        return f"{self.instance}@{self.number}"


Line = Mapping[str, Checkpoint]
"""One checkpoint of each instance: where all of them go back to."""


class History:
    """All checkpoints that instances may go back to, the oldest first.

    Parameters
    ----------
    instances, wires
        Who there is, and who sends to whom.

    Examples
    --------
    >>> history = History(["a", "b"], [Wire(0, "a", "b")])
    >>> history.add(Checkpoint("a", 1, sent={0: 3}))
    >>> print(*history.newest().values())
    a@1 b@0
    """

    def __init__(self, instances: Iterable[str], wires: Sequence[Wire]) -> None:
        self.wires = tuple(wires)
        self.checkpoints: dict[str, list[Checkpoint]] = {one: [Checkpoint(one, 0, kind=INITIAL)] for one in instances}
        """By instance, in order."""

    def begin_at(self, line: Line) -> None:
        """All instances begin where these checkpoints are; called before the first is added."""
        self.checkpoints = {one: [line[one]] for one in self.checkpoints}

    def add(self, checkpoint: Checkpoint) -> None:
        """One more; ValueError where it is not the next one of its instance."""
        before = self.checkpoints[checkpoint.instance][-1]
        if checkpoint.number != before.number + 1:
            raise ValueError(f"{checkpoint} was told behind {before}")
        self.checkpoints[checkpoint.instance].append(checkpoint)

    def newest(self) -> dict[str, Checkpoint]:
        """The last one of each instance."""
        return {one: checkpoints[-1] for one, checkpoints in self.checkpoints.items()}

    def after(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """The next one of the same instance."""
        return self._at(checkpoint.instance, checkpoint.number + 1)

    def before(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """The one before it, of the same instance."""
        return self._at(checkpoint.instance, checkpoint.number - 1)

    def _at(self, instance: str, number: int) -> Checkpoint | None:
        kept = self.checkpoints[instance]
        place = number - kept[0].number
        return kept[place] if 0 <= place < len(kept) else None

    def forget_before(self, line: Line) -> list[Checkpoint]:
        """Keep a line and what is behind it: nobody goes back further. Gives what is not needed any more."""
        gone = []
        for one, kept in self.checkpoints.items():
            place = line[one].number - kept[0].number
            gone += kept[:place]
            del kept[:place]
        return gone

    def go_back(self, line: Line) -> list[Checkpoint]:
        """All instances go on from a line: what came behind it never happened. Gives those checkpoints."""
        gone = []
        for one, kept in self.checkpoints.items():
            place = line[one].number - kept[0].number + 1
            gone += kept[place:]
            del kept[place:]
        return gone
