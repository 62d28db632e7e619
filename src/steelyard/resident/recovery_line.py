"""Checkpoints of one generation as its coordinator knows them, and the line that all instances would go back to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from steelyard.checkpoint import (
    FORCED,
    INITIAL,
    ROUND,
    Change,
    Checkpoint,
    CheckpointProtocol,
    Line,
    Wire,
    in_flight,
    lost,
    orphans,
)
from steelyard.core.durable import Described
from steelyard.resident.chains import Chains
from steelyard.resident.manifest import Log, Manifest
from steelyard.resident.operator import ALONE, Attempt
from steelyard.resident.snapshot import CHECKPOINTS, checkpoint_name
from steelyard.resident.wire import WireError

STOPPED = "stopped"
"""The kind of a checkpoint for which all stopped."""


@dataclass
class CheckpointTotals:
    """What checkpoints of a job came to, over all generations."""

    taken: dict[str, int] = field(default_factory=dict)
    """By kind (`local`, `forced`, `round`; `stopped`, where all stopped): checkpoints of instances, when durable."""
    useless: int = 0
    """Of those, how many a failure found behind the line, so that they were for nothing."""
    chains: int = 0
    """How many there were of whole chains, which stand still and write once for all of their instances."""
    moments: int = 0
    """Of these, how many chains took of themselves, for a round, or where all stopped: all but forced ones."""
    stood: float = 0.0
    """Seconds in which chains of instances stood still for them, in all."""
    seconds: float = 0.0
    """Seconds from when those of chains were taken until they were durable, in all."""
    bytes: int = 0
    """Of states and logs."""
    log_bytes: int = 0
    """Of logs alone."""
    rounds: list[float] = field(default_factory=list)
    """Seconds of each whole round, from its beginning until all of it was durable."""
    changes: list[Change] = field(default_factory=list)
    """What a protocol has changed of itself while the job ran, and why."""

    def all_stopped(self, sizes: Sequence[int], chains: int, whole: float, durable: float) -> None:
        """Count a snapshot for which all stopped, which is a round too.

        Parameters
        ----------
        sizes
            Bytes of the state of each instance.
        chains
            How many stood still.
        whole, durable
            Seconds from the order to stop until all went on, and from rest until all was durable.
        """
        self.taken[STOPPED] = self.taken.get(STOPPED, 0) + len(sizes)
        self.chains += chains
        self.moments += chains
        self.stood += chains * whole
        self.seconds += chains * durable
        self.bytes += sum(sizes)
        self.rounds.append(whole)


_ALL = 1 << 62
"""More messages than any channel has."""


class _Kept(NamedTuple):
    """What is on disk of a checkpoint of a chain."""

    files: Mapping[str, Described]
    numbers: Mapping[str, int]
    captured: Sequence[Sequence[int]]
    """(channel, first, last): messages that are part of it, since they had come and were not worked off."""


class RecoveryLine:
    """Takes in what chains tell of their checkpoints, and knows from where all would go on.

    Parameters
    ----------
    protocol
        Whose checkpoints they are.
    chains
        Who takes them.
    resumed
        Where this generation began; None for the beginning.
    totals
        Where they are counted.
    attempt
        Which attempt of the job takes them.
    """

    def __init__(
        self,
        protocol: CheckpointProtocol,
        chains: Chains,
        resumed: Manifest | None,
        totals: CheckpointTotals,
        attempt: Attempt = ALONE,
    ) -> None:
        self._protocol, self._totals, self._attempt = protocol, totals, attempt
        self._chains = {str(head): chains.members(head) for head in chains.heads}
        wires = chains.wires()
        self._outward = {head: {wire.number for wire in wires if wire.sender == head} for head in self._chains}
        self._inward = {head: {wire.number for wire in wires if wire.receiver == head} for head in self._chains}
        self._central = protocol.central(list(self._chains), wires)
        self._logs: list[tuple[str, int, Log]] = []
        """(chain, number of its checkpoint, what it sent before): those that somebody may still ask for."""
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._begun = time.monotonic()
        self._round_begun: dict[int, float] = {}
        self._reported: dict[int, int] = {}
        self._gone: list[Described] = []
        self._lossy = resumed is not None and resumed.lossy
        self._behind: set[str] = set()
        """Chains in which something was under way, between instances that had threads of their own."""
        if resumed is not None:
            self._resume(resumed, chains.inner())
        self.line: Line = self._central.line()

    def _resume(self, manifest: Manifest, inner: Sequence[Wire]) -> None:
        sent, received = ({int(one): many for one, many in of.items()} for of in (manifest.sent, manifest.received))
        line = {}
        for head, members in self._chains.items():
            out = {one: sent.get(one, 0) for one in self._outward[head]}
            into = {one: received.get(one, 0) for one in self._inward[head]}
            line[head] = Checkpoint(head, 0, out, into, INITIAL)
            known = {str(one): manifest.files[str(one)] for one in members if str(one) in manifest.files}
            # of a channel that was inside of a chain then nobody counted
            under_way = [(one, into[one] + 1, sent.get(one, _ALL if sent else 0)) for one in self._inward[head]]
            self._kept[head, 0] = _Kept(known, {}, under_way)
        self._behind = {head for one, head, _ in inner if sent.get(one, 0) > received.get(one, 0)}
        if not manifest.files:  # states were dealt out: nobody has one of before for himself
            self._behind = set(self._chains)
        self._central.begin_at(line)
        self._logs = [("", 0, log) for log in manifest.logs]

    @property
    def plan(self) -> str:
        """What markers of the round carry that has just begun."""
        return self._central.plan

    def next_round(self) -> int | None:
        """The round that begins now, if one does."""
        now = time.monotonic()
        known = len(self._central.changes)
        number = self._central.next_round(now - self._begun)
        self._totals.changes += self._central.changes[known:]
        if number is not None:
            self._round_begun[number] = now
        return number

    def set_interval(self, protocol: CheckpointProtocol) -> None:
        """The same protocol has another interval from now on."""
        self._protocol = protocol
        self._central.set_interval(protocol.interval)

    def reported(self, what: Mapping[str, Any]) -> bool:
        """A checkpoint is durable; whether the line has moved. WireError where it cannot be."""
        head, number, kind = what["chain"], what["number"], what["kind"]
        if head not in self._chains or set(what["files"]) != set(map(str, self._chains[head])):
            raise WireError(f"a checkpoint of {head!r} has states of {sorted(what['files'])}, which cannot be")
        sent, received = dict(map(tuple, what["sent"])), dict(map(tuple, what["received"]))
        if set(sent) != self._outward[head] or set(received) != self._inward[head]:
            raise WireError(f"a checkpoint of {head!r} tells of channels that are not its own")
        files = {name: Described(*file) for name, file in what["files"].items()}
        log = Log(Described(*what["log"]), what["spans"]) if what["log"] else None
        told = {**files, f"{head} log": log.file} if log is not None else files
        for whose, file in told.items():
            if file.name != checkpoint_name(whose, number, self._attempt):
                raise WireError(f"checkpoint {number} of {whose!r} was written to {file.name!r}, which cannot be")
        try:
            self._central.reported(
                Checkpoint(
                    head,
                    number,
                    sent,
                    received,
                    kind,
                    what["for_round"],
                    dict(map(tuple, what["unlogged"])),
                    what["rows"],
                    what["waited"],
                )
            )
        except ValueError as error:
            raise WireError(f"a checkpoint was told that cannot come now: {error}") from error
        self._kept[head, number] = _Kept(files, what["numbers"], what["captured"])
        if log is not None:
            self._logs.append((head, number, log))
        self._count(kind, what, [*files.values()], log)
        before, self.line = self.line, self._central.line()
        return self.line != before

    def _count(self, kind: str, what: Mapping[str, Any], files: Sequence[Described], log: Log | None) -> None:
        totals = self._totals
        totals.taken[kind] = totals.taken.get(kind, 0) + len(files)
        totals.chains += 1
        totals.moments += kind != FORCED
        totals.stood += what["stood"]
        totals.seconds += what["seconds"]
        totals.log_bytes += log.file.size if log else 0
        totals.bytes += sum(file.size for file in files) + (log.file.size if log else 0)
        if kind == ROUND:
            number = what["for_round"]
            self._reported[number] = self._reported.get(number, 0) + 1
            if self._reported[number] == len(self._chains) and number in self._round_begun:
                totals.rounds.append(time.monotonic() - self._round_begun.pop(number))

    @property
    def files(self) -> dict[str, Described]:
        """By instance: the file of its state in the line."""
        return {name: file for one in self._members() for name, file in one.files.items()}

    @property
    def numbers(self) -> dict[str, int]:
        """By instance: which of its checkpoints is in the line, of those that were taken in this generation."""
        return {name: number for one in self._members() for name, number in one.numbers.items()}

    def _members(self) -> Iterable[_Kept]:
        return (self._kept[head, one.number] for head, one in self.line.items() if (head, one.number) in self._kept)

    @property
    def is_whole(self) -> bool:
        """Whether every chain has a checkpoint in the line that knows all; before that nobody goes back to the line."""
        whole = all((head, one.number) in self._kept for head, one in self.line.items())
        return whole and all(self.line[head].number for head in self._behind)

    def committed(self, manifest: Manifest) -> Manifest:
        """A commit with what was sent and received by the line, and with the logs of what is between the two.

        Orphans would make it wrong, and so would messages that nobody has; there are none, and tests always look.
        """
        history = self._central.history
        assert not list(orphans(history, self.line)), "nobody has worked off what nobody has sent"
        assert not list(lost(history, self.line)), "what was sent and not worked off is somewhere"
        sent = {str(wire): many for one in self.line.values() for wire, many in one.sent.items()}
        received = {str(wire): many for one in self.line.values() for wire, many in one.received.items()}
        under_way = in_flight(history, self.line)
        wanted = [
            log
            for chain, number, log in self._logs
            if (not chain or number <= self.line[chain].number)
            and any(wire in under_way and last >= under_way[wire][0] for wire, _, last in log.spans)
        ]
        unlogged = not self._protocol.logged and not self._protocol.markers
        lossy = bool(under_way) and (unlogged or (self._lossy and any(not one.number for one in self.line.values())))
        assert lossy or not list(self._dropped(under_way, wanted)), "somebody has all that was under way"
        return replace(manifest, files=self.files, sent=sent, received=received, logs=wanted, lossy=lossy)

    def _dropped(self, under_way: Mapping[int, tuple[int, int]], logs: Sequence[Log]) -> Iterator[int]:
        """Wires with a message under way that is in no log, and not part of the receiver's checkpoint."""
        held: dict[int, list[tuple[int, int]]] = {}
        for spans in (*(log.spans for log in logs), *(kept.captured for kept in self._members())):
            for wire, first, last in spans:
                held.setdefault(wire, []).append((first, last))
        for wire, (begin, end) in under_way.items():
            for first, last in sorted(held.get(wire, ())):
                begin = max(begin, last + 1) if first <= begin else begin  # noqa: PLW2901 - it is used up
            if begin <= end:
                yield wire

    def forget(self, manifest: Manifest) -> list[Described]:
        """Files that nobody asks for any more, now that a line is committed, and was when the one before was."""
        gone, self._gone = self._gone, []
        for one in self._central.forget():
            kept = self._kept.pop((one.instance, one.number), None)
            self._gone += kept.files.values() if kept else ()
        history, line = self._central.history, self.line
        worked_off = {wire: line[receiver].received.get(wire, 0) for wire, _, receiver in history.wires}
        alive = [one for one in self._logs if any(last > worked_off.get(wire, last) for wire, _, last in one[2].spans)]
        self._gone += [log.file for *_, log in self._logs if all(log is not one[2] for one in alive)]
        self._logs = alive
        named = {file.name for file in manifest.described}
        return [file for file in gone if file.name not in named and file.name.startswith(f"{CHECKPOINTS}/")]

    def give_up(self) -> None:
        """This generation failed: count what came behind the line."""
        for one in self._central.went_back():
            self._totals.useless += len(self._chains[one.instance])
