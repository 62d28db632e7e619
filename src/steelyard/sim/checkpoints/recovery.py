"""What happens when a worker fails: the line that the protocol finds, states that are loaded, rows that come again."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steelyard.checkpoint import History, Line, in_flight, lost, orphans, recovery_line, truncation
from steelyard.core import SteelyardError
from steelyard.sim.checkpoints.running import Rows, Saved

if TYPE_CHECKING:
    from steelyard.sim.checkpoints.simulation import Simulation


class InconsistentLineError(SteelyardError):
    """A protocol goes back to checkpoints that do not fit together, or cannot give what was under way between them."""


@dataclass(frozen=True)
class Failure:
    """A worker loses everything that it has in memory, at a second."""

    at: float
    worker: int = 0


@dataclass(frozen=True)
class Restart:
    """How a failure was overcome.

    Parameters
    ----------
    failed, detected, ready
        When it happened, when it was noticed, when all states were loaded.
    taken, invalid
        Checkpoints that there were, and those of them behind the line.
    invalid_across
        How many would be behind a line that looks only at channels between workers, as the published system's does.
    deepest, rollback_seconds
        Checkpoints that the instance gave up that gave up most, and the age of the oldest checkpoint of the line.
    replayed_rows, replayed_messages
        What came again from logs, or out of checkpoints.
    """

    failed: float
    detected: float
    ready: float
    taken: int
    invalid: int
    invalid_across: int
    deepest: int
    rollback_seconds: float
    replayed_rows: int
    replayed_messages: int

    @property
    def seconds(self) -> float:
        """From the moment when it is noticed until all are ready."""
        return self.ready - self.detected

    @property
    def invalid_share(self) -> float:
        """Of all checkpoints, those that were of no use."""
        return self.invalid / self.taken if self.taken else 0.0


class Logs:
    """What senders have kept, by wire.

    Parameters
    ----------
    kept
        Whether anything is: without failures nobody asks for it, and what it costs is charged in any case.
    """

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self._rows: dict[int, list[Rows]] = defaultdict(list)

    def add(self, item: Rows) -> None:
        """One more."""
        self._rows[item.wire].append(item)

    def truncate(self, last: dict[int, int]) -> None:
        """Forget what nobody can ask for: up to this number of each wire."""
        for wire, number in last.items():
            known = self._rows.get(wire)
            if known and known[0].number <= number:
                self._rows[wire] = [item for item in known if item.number > number]

    def go_back(self, sent: dict[int, int]) -> None:
        """What was sent behind a line never was."""
        for wire, known in self._rows.items():
            if known and known[-1].number > sent.get(wire, 0):
                self._rows[wire] = [item for item in known if item.number <= sent.get(wire, 0)]

    def between(self, wire: int, first: int, last: int) -> list[Rows]:
        """Messages of a wire by number."""
        return [item for item in self._rows[wire] if first <= item.number <= last]


class Recovery:
    """Keeps what checkpoints have saved, and brings a run back to a line of them.

    Parameters
    ----------
    run
        The simulation.
    detection
        Seconds until a failure is noticed.
    kept
        Whether checkpoints are: without failures nobody asks for them.
    """

    def __init__(self, run: Simulation, detection: float, kept: bool) -> None:
        self._run, self._detection, self._kept = run, detection, kept
        self._saved: dict[tuple[str, int], Saved] = {}
        self._failed = 0.0
        self.down = False
        """Whether a failure was noticed, and not all states are loaded."""

    def keep(self, saved: Saved) -> None:
        """A checkpoint is durable."""
        if self._kept:
            self._saved[saved.told.instance, saved.told.number] = saved

    def forget(self) -> None:
        """Throw away what no line can ask for any more."""
        line = self._run.central.line()
        for gone in self._run.central.forget():
            self._saved.pop((gone.instance, gone.number), None)
        self._run.logs.truncate(dict(truncation(self._run.central.history, line)))

    def fail(self, failure: Failure) -> None:
        """A worker is gone; the others do not know it yet."""
        if self.down:
            return
        self._failed = self._run.now
        worker = self._run.graph.workers[failure.worker]
        worker.forget()
        worker.dead = True
        self._run.at(self._run.now + self._detection, self._noticed, None)

    def _noticed(self, _: None) -> None:
        run = self._run
        self.down = True
        run.stop_everything()
        taken = sum(run.tally.taken.values())
        line = run.central.line()
        history = run.central.history
        wrong = list(orphans(history, line))
        if wrong:
            raise InconsistentLineError(f"{run.protocol.name}: wires with orphans {wrong[:3]}")
        gone_for_ever = list(lost(history, line))
        if gone_for_ever:
            raise InconsistentLineError(f"{run.protocol.name}: wires whose messages no log has {gone_for_ever[:3]}")
        under_way = in_flight(history, line)
        across = self._invalid_across() if run.protocol.logged else 0
        gone = run.central.went_back()
        each = Counter(one.instance for one in gone)
        again = self._again(line, under_way)
        seconds = self._seconds(line, again)
        messages = sum(self._messages(item) for item in again)
        run.tally.restarts.append(
            Restart(
                self._failed,
                run.now,
                run.now + seconds,
                taken,
                len(gone),
                across,
                max(each.values(), default=0),
                run.now - min(self._begun(name, told.number) for name, told in line.items()),
                sum(item.rows for item in again),
                messages,
            )
        )
        run.at(run.now + seconds, self._ready, (line, again))

    def _begun(self, name: str, number: int) -> float:
        return self._saved[name, number].begun if number else 0.0

    def _invalid_across(self) -> int:
        run = self._run
        worker = {name: one.worker for name, one in run.graph.instances.items()}
        between = [wire for wire in run.graph.wires if worker[wire.sender] is not worker[wire.receiver]]
        history = History(run.graph.names, between)
        history.checkpoints = run.central.history.checkpoints
        line = recovery_line(history)
        return sum(kept[-1].number - line[name].number for name, kept in history.checkpoints.items())

    def _messages(self, item: Rows) -> int:
        return -(-item.rows // self._run.job.rows_per_message)

    def _again(self, line: Line, under_way: dict[int, tuple[int, int]]) -> list[Rows]:
        """All rows that were under way at a line, from logs or out of the checkpoints."""
        run = self._run
        found: dict[int, list[Rows]] = defaultdict(list)
        for name, told in line.items():
            saved = self._saved.get((name, told.number))
            for item in saved.captured if saved is not None else ():
                found[item.wire].append(item)
        if run.logs.kept:
            for wire, (first, last) in under_way.items():
                found[wire] = run.logs.between(wire, first, last)
            run.logs.go_back({wire.number: line[wire.sender].sent.get(wire.number, 0) for wire in run.graph.wires})
        must = run.protocol.logged or run.protocol.markers
        for wire, (first, last) in under_way.items() if must else ():
            if [item.number for item in found[wire]] != list(range(first, last + 1)):
                raise InconsistentLineError(f"{run.protocol.name}: wire {wire} lacks some of {first} to {last}")
        return [item for items in found.values() for item in items]

    def _seconds(self, line: Line, again: list[Rows]) -> float:
        """Find the line, then on all workers at once: load states, and find in logs what comes again."""
        run, costs = self._run, self._run.costs
        each = dict.fromkeys(range(run.job.workers), 0.0)
        for name, told in line.items():
            saved = self._saved.get((name, told.number))
            kept = saved.kept + saved.captured_bytes if saved is not None else 0.0
            each[run.graph.instances[name].worker.number] += costs.load + costs.load_byte * kept
        wires: dict[int, list[Rows]] = defaultdict(list)
        for item in again if run.protocol.logged else ():
            wires[item.wire].append(item)
        for wire, items in wires.items():
            hop = run.graph.hop_of[wire]
            messages = sum(map(self._messages, items))
            payload = messages * hop.message_bytes + sum(item.rows for item in items) * hop.row_bytes
            sender = run.graph.instances[run.graph.wires[wire].sender].worker.number
            each[sender] += costs.replay_wire + messages * costs.replay_message + payload * costs.replay_byte
        search = costs.line_wire * len(run.graph.wires) if run.protocol.logged else 0.0
        return search + max(each.values()) + 2 * costs.delay

    def _ready(self, what: tuple[Line, list[Rows]]) -> None:
        line, again = what
        run = self._run
        for name, told in line.items():
            run.graph.instances[name].restore(self._saved[name, told.number] if told.number else None, run.now)
        self.down = False
        run.hand_over(again)
        run.start_sources()
