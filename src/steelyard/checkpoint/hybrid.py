"""A protocol for each region of the graph: aligned rounds where load is even, logs and own clocks where it is not.

An operator is *coordinated* or *uncoordinated*; operators that are alike and send to each other are a region. A channel
with an uncoordinated operator at either end is **logged**, all others are **aligned**:

- Rounds go through the whole graph. An instance takes its checkpoint as soon as the markers of all its *aligned* inputs
  have come, at the first marker where it has none. Until then it holds back inputs whose marker has come. What logged
  inputs have not brought yet is in their senders' logs. With all channels aligned that is `coordinated`; with all of
  them logged nobody ever waits. At a boundary a wait could be one for oneself, by way of full queues; it is given up.
- Instances of uncoordinated operators also go by a clock of their own, where no marker comes for longer than a round:
  behind a hot worker markers are late, and what such an instance did meanwhile would be done again.
- On a cycle nothing is ever aligned. Rounds go round it once, at the first marker of each instance: there is no domino
  effect as with clocks alone, since the checkpoints of a whole round fit together whatever is logged.

**The line** is that of the checkpoint graph, with one more kind of edge (`lines.py`): checkpoints say which message of
a channel was the last that no log has, and a checkpoint behind it cannot be in a line with a receiver that has not had
it. So a coordinated region goes back to one round as a whole, though nothing is said about regions there, and what the
other regions have is taken as far as it goes. No line has an orphan, and none loses a message.

**Changes while a job runs.** A round's plan, the names of its uncoordinated operators, travels with its markers, and
holds from an instance's checkpoint of this round on. A channel that becomes logged is aligned once more in this round,
since its sender begins its log behind it; one that becomes aligned is aligned from this round on. That is for *newer*
lines only: whatever halves know of a plan, also after a failure in the middle of a change, the numbers in checkpoints
are of what was in fact logged, and a line that would lose something is none.

**Choice.** With every round instances tell how long the markers of the one before (or of this one, where they waited)
came after each other, which is what alignment takes or would take, and how many rows they have processed. An operator
with hot keys, or one that waited too long, becomes uncoordinated; one that is even and would hardly wait becomes
coordinated. All begin uncoordinated, where nothing can go wrong, and each time that one has to be taken back it must be
calm for twice as many rounds before the next try.

What it can gain: `coordinated` markers stall behind hot keys, and lines of `uncoordinated` clocks are older, with more
to do again. `unaligned`, the usual protocol, does neither, at the price of channels in its checkpoints; what is gained
over it is that nothing overtakes and that checkpoints are states alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from steelyard.checkpoint.history import ROUND, Checkpoint, Wire
from steelyard.checkpoint.joining import Joining, operator_of
from steelyard.checkpoint.protocol import Central, Change, CheckpointProtocol, Place, require_interval
from steelyard.core import OptionError

log = logging.getLogger(__name__)

COORDINATED, UNCOORDINATED = "coordinated", "uncoordinated"
REGIONS = (COORDINATED, UNCOORDINATED)
BEHIND = 3
"""Rounds by which uncoordinated instances may be behind when one begins: markers must not come faster than they go."""


@dataclass
class Operator:
    """What is known of an operator at the coordinator.

    Parameters
    ----------
    instances
        Its instances.
    region
        Where it is.
    fixed
        Whether it stays there.
    needed
        Rounds in which it has to be calm before it is coordinated.
    """

    instances: list[str]
    region: str
    fixed: bool
    needed: int
    calm: int = 0


class Regions(Central):
    """Begins rounds, plans which operators are uncoordinated, and finds the line in the checkpoint graph.

    A round begins when all instances of coordinated operators have taken part in the one before; others may be behind.

    Parameters
    ----------
    instances, wires
        The graph.
    protocol
        With which thresholds.
    """

    def __init__(self, instances: Sequence[str], wires: Sequence[Wire], protocol: Hybrid) -> None:
        super().__init__(instances, wires)
        self._protocol = protocol
        self.operators = self._grouped(instances, wires)
        self.begun = 0
        self._next = protocol.interval
        self._at = dict.fromkeys(instances, 0)
        """By instance: its newest round."""
        self._rows: dict[str, int] = {}
        """By instance: rows at its newest checkpoint of a round."""
        self._told: dict[str, tuple[int, float]] = {}
        """By instance: rows between its last two rounds, and how long markers came after each other."""

    def _grouped(self, instances: Sequence[str], wires: Sequence[Wire]) -> dict[str, Operator]:
        protocol, chosen = self._protocol, self._protocol.chosen
        found: dict[str, list[str]] = {}
        for one in instances:
            found.setdefault(operator_of(one), []).append(one)
        for name in chosen:
            if name not in found:
                raise OptionError.unknown(f"operator of regions= of {protocol.name}", name, found)
        away: dict[str, set[str]] = {name: set() for name in found}
        for wire in wires:
            away[operator_of(wire.sender)].add(operator_of(wire.receiver))
        looped = {name for name in found if name in _reached(away, name)}
        fed = set().union(*away.values())
        for name in looped & {name for name, region in chosen.items() if region == COORDINATED}:
            raise OptionError(f"{protocol.name}: {name!r} is on a cycle, where aligned markers wait for ever")
        regions = {name: protocol.begins if name in fed else COORDINATED for name in found}
        regions |= chosen | dict.fromkeys(looped, UNCOORDINATED)
        fixed = looped | set(chosen) | (found.keys() - fed)
        return {
            name: Operator(parts, regions[name], name in fixed or not protocol.adaptive, protocol.calm)
            for name, parts in found.items()
        }

    @property
    def uncoordinated(self) -> list[str]:
        """The operators that are, in order of their names."""
        return sorted(name for name, one in self.operators.items() if one.region == UNCOORDINATED)

    @property
    def plan(self) -> str:
        """Their names."""
        return ",".join(self.uncoordinated)

    def next_round(self, now: float) -> int | None:
        """The next one, where it is time and coordinated regions have had the one before."""
        if now < self._next or not all(map(self._keeps_up, self.operators.values())):
            return None
        self._next = now + self._protocol.interval
        self.begun += 1
        self.decide()
        return self.begun

    def set_interval(self, interval: float) -> None:
        """Also of the round that is awaited; who waits too long for a marker is told by the new one."""
        self._next += interval - self._protocol.interval
        self._protocol = replace(self._protocol, interval=interval)

    def _keeps_up(self, one: Operator) -> bool:
        behind = 0 if one.region == COORDINATED else BEHIND
        return all(self._at[instance] >= self.begun - behind for instance in one.instances)

    def reported(self, checkpoint: Checkpoint) -> None:
        """A checkpoint; one of a round says how its instance is doing."""
        super().reported(checkpoint)
        if checkpoint.kind != ROUND:
            return
        self._at[checkpoint.instance] = checkpoint.round
        rows = self._rows.get(checkpoint.instance, 0)
        self._rows[checkpoint.instance] = checkpoint.rows
        self._told[checkpoint.instance] = checkpoint.rows - rows, checkpoint.waited

    def went_back(self) -> list[Checkpoint]:
        """All go on from `line`: a round that was begun will not be complete, and rows are counted anew."""
        self._at = dict.fromkeys(self._at, self.begun)
        self._told.clear()
        gone = super().went_back()
        self._rows = {one: kept[-1].rows for one, kept in self.history.checkpoints.items()}
        return gone

    def decide(self) -> None:
        """Look at every operator of which something new is known, before a round."""
        for name, one in self.operators.items():
            told = [self._told.get(instance) for instance in one.instances]
            if one.fixed or None in told:
                continue
            known = [self._told.pop(instance) for instance in one.instances]
            rows, waited = [each[0] for each in known], max(each[1] for each in known)
            if sum(rows) > 0 and min(each[1] for each in known) >= 0:  # else nobody knows yet
                self._decide(name, one, waited, max(rows) * len(rows) / sum(rows))

    def _decide(self, name: str, one: Operator, waited: float, skew: float) -> None:
        """Hysteresis: hot or slow leads out at once, and even and quick, for some rounds, back in."""
        protocol = self._protocol
        slow = protocol.patience * protocol.interval
        why = f"markers came {waited:.3g} s after each other, its hottest instance had {skew:.2f} times its share"
        if one.region == COORDINATED:
            if waited > slow or skew >= protocol.hot:
                one.needed *= 2
                self._change(name, one, UNCOORDINATED, why)
            return
        one.calm = one.calm + 1 if waited <= slow / 2 and skew <= protocol.even else 0
        if one.calm >= one.needed:
            self._change(name, one, COORDINATED, why)

    def _change(self, name: str, one: Operator, region: str, why: str) -> None:
        one.region, one.calm = region, 0
        self.changes.append(Change(self.begun, name, region, why))
        log.info("from round %d on %s is %s: %s", self.begun, name, region, why)


def _reached(away: Mapping[str, set[str]], start: str) -> set[str]:
    """Operators to which rows of one may come."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = away[waiting.pop()] - found
        found |= new
        waiting += new
    return found


@dataclass(frozen=True)
class Hybrid(CheckpointProtocol):
    """Align markers where load is even; log, and wait for nobody, where keys are hot or rows go round.

    Operators on a cycle are uncoordinated. All others change while the job runs, by what is measured, unless `regions`
    names them.

    Parameters
    ----------
    interval
        Seconds between the beginnings of two rounds.
    regions
        Operators that stay where they are put, as in `"count:uncoordinated,join:coordinated"`; for a chain of instances
        its first one.
    begins
        Where all others begin, `"uncoordinated"` or `"coordinated"`. Sources wait for nobody, and are coordinated.
    adaptive
        Whether they change.
    patience
        How long an operator may wait for markers in a round, as a share of the interval, before it is uncoordinated. It
        goes back where it would wait half as long.
    hot
        An operator is uncoordinated where one of its instances has so many times its share of rows.
    even
        It goes back where none has more than this.
    calm
        For so many rounds both must hold before it does; twice as many after each time that it had to leave again.

    Examples
    --------
    >>> wires = [Wire(0, "read#0", "count#0"), Wire(1, "count#0", "loop#0"), Wire(2, "loop#0", "count#0")]
    >>> Hybrid().central(["read#0", "count#0", "loop#0"], wires).uncoordinated
    ['count', 'loop']
    """

    interval: float = 5.0
    regions: str = ""
    begins: str = UNCOORDINATED
    adaptive: bool = True
    patience: float = 0.05
    hot: float = 1.5
    even: float = 1.25
    calm: int = 2
    name: ClassVar[str] = "hybrid"
    markers: ClassVar[bool] = True
    timers: ClassVar[bool] = True
    logged: ClassVar[bool] = True  # type: ignore[misc] # where a half says so
    deduplicates: ClassVar[bool] = True  # type: ignore[misc]
    paper: ClassVar[str] = "Siachamis 2025, section 3, names it as future work"

    def __post_init__(self) -> None:
        require_interval(self.name, self.interval)
        for region in (self.begins, *self.chosen.values()):
            if region not in REGIONS:
                raise OptionError.unknown(f"region of {self.name}", region, REGIONS)
        if not self.patience > 0 or not 1 <= self.even <= self.hot or self.calm < 1:
            raise OptionError(
                f"{self.name}: patience must be above 0, even between 1 and hot, and calm at least 1, got "
                f"patience={self.patience}, even={self.even}, hot={self.hot}, calm={self.calm}"
            )

    @property
    def chosen(self) -> dict[str, str]:
        """By operator: the region in which it was put."""
        parts = (part.strip().rpartition(":") for part in self.regions.split(",") if part.strip())
        return {operator: region for operator, _, region in parts}

    def beside(self, place: Place) -> Joining:
        """Joins rounds."""
        return Joining(place, self.interval)

    def central(self, instances: Sequence[str], wires: Sequence[Wire]) -> Regions:
        """Plans regions."""
        return Regions(instances, wires, self)
