"""Recovery lines: which checkpoints instances may go back to together, and what is sent again then.

A set of checkpoints, one of each instance, is consistent where no message was processed before the one that was not
sent before the other: such a message would be an orphan, and its sender would send it, or another in its place, once
more (Siachamis 2025, section 3). Where senders keep a log of some channels only, no message may have been sent before
the one, not processed before the other, and be in no log: it would be lost, so that its sender goes back before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from steelyard.checkpoint.history import Checkpoint, History, Line, Wire

Spot = tuple[str, int]
"""A checkpoint by instance and number."""


class CheckpointGraph:
    """An edge leads from a checkpoint to each that cannot be in a line with it, or with one before it.

    There is one from a checkpoint to the next of its instance, and one from a checkpoint of a sender to the first of a
    receiver that has processed a message sent after it: those behind that one are reached through it. And one from a
    checkpoint of a receiver to the first of a sender that has sent a message, in no log, that was not processed before
    it. Where nothing of a channel is in a log, its two ends go back to one round together.

    Parameters
    ----------
    history
        All checkpoints.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self.edges: dict[Spot, list[Checkpoint]] = {}
        """From each checkpoint."""
        for kept in history.checkpoints.values():
            for one in kept:
                after = history.after(one)
                self.edges[_spot(one)] = [after] if after is not None else []
        for wire in history.wires:
            receivers = iter(history.checkpoints[wire.receiver])
            receiver = next(receivers, None)
            for sender in history.checkpoints[wire.sender]:  # both grow with the number: one pass over each
                sent = sender.sent.get(wire.number, 0)
                while receiver is not None and receiver.received.get(wire.number, 0) <= sent:
                    receiver = next(receivers, None)
                if receiver is not None:
                    self.edges[_spot(sender)].append(receiver)
            self._add_unlogged(wire)

    def _add_unlogged(self, wire: Wire) -> None:
        """Edges from receivers to senders, by what is in no log."""
        if not self._history.checkpoints[wire.sender][-1].unlogged.get(wire.number):
            return
        senders = iter(self._history.checkpoints[wire.sender])
        sender = next(senders, None)
        for receiver in self._history.checkpoints[wire.receiver]:
            processed = receiver.received.get(wire.number, 0)
            while sender is not None and sender.unlogged.get(wire.number, 0) <= processed:
                sender = next(senders, None)
            if sender is not None:
                self.edges[_spot(receiver)].append(sender)

    def reached_from(self, roots: Iterable[Checkpoint]) -> set[Spot]:
        """All checkpoints to which at least one edge leads from one of these."""
        reached: set[Spot] = set()
        waiting = list(roots)
        while waiting:
            for one in self.edges[_spot(waiting.pop())]:
                if _spot(one) not in reached:
                    reached.add(_spot(one))
                    waiting.append(one)
        return reached


def recovery_line(history: History) -> dict[str, Checkpoint]:
    """The newest consistent line: rollback propagation (Algorithm 2 of Siachamis 2025, section 3).

    >>> from steelyard.checkpoint.history import Wire
    >>> history = History(["a", "b"], [Wire(0, "a", "b")])
    >>> history.add(Checkpoint("b", 1, received={0: 1}))  # of a message that `a` has sent since its beginning
    >>> print(*recovery_line(history).values())
    a@0 b@0
    """
    graph = CheckpointGraph(history)
    root = history.newest()
    marked = graph.reached_from(root.values())
    while any(_spot(one) in marked for one in root.values()):
        for instance, one in list(root.items()):
            back: Checkpoint | None = one
            while back is not None and _spot(back) in marked:
                back = history.before(back)
            if back is None:
                raise ValueError(
                    f"every checkpoint of {instance} that is left has an orphan: one too many was forgotten"
                )
            root[instance] = back
        marked |= graph.reached_from(root.values())
    return root


def orphans(history: History, line: Line) -> Iterator[tuple[int, int, int]]:
    """(wire, first, last): messages that were processed and not sent, by a line. A consistent one has none."""
    for wire, sender, receiver in history.wires:
        sent = line[sender].sent.get(wire, 0)
        received = line[receiver].received.get(wire, 0)
        if received > sent:
            yield wire, sent + 1, received


def lost(history: History, line: Line) -> Iterator[tuple[int, int]]:
    """(wire, number): a message that was sent, not processed and in no log, by a line. A consistent one has none."""
    for wire, sender, receiver in history.wires:
        unlogged = line[sender].unlogged.get(wire, 0)
        if unlogged > line[receiver].received.get(wire, 0):
            yield wire, unlogged


def in_flight(history: History, line: Line) -> dict[int, tuple[int, int]]:
    """By wire: first and last message that was sent and not processed, by a line: all that must be sent again."""
    found: dict[int, tuple[int, int]] = {}
    for wire, sender, receiver in history.wires:
        sent = line[sender].sent.get(wire, 0)
        received = line[receiver].received.get(wire, 0)
        if sent > received:
            found[wire] = received + 1, sent
    return found


def truncation(history: History, line: Line) -> Mapping[int, int]:
    """By wire: the last message of its log that nobody can ask for any more."""
    return {wire: line[receiver].received.get(wire, 0) for wire, _, receiver in history.wires}


def is_useless(history: History, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is in no consistent line at all, which is so where it is on a Z-cycle."""
    line: dict[str, Checkpoint] = history.newest() | {checkpoint.instance: checkpoint}
    waiting = True
    while waiting:
        waiting = False
        for wire, sender, receiver in history.wires:
            while line[receiver].received.get(wire, 0) > line[sender].sent.get(wire, 0):
                back = history.before(line[receiver])
                if receiver == checkpoint.instance or back is None:
                    return True
                line[receiver] = back
                waiting = True
    return False


def _spot(checkpoint: Checkpoint) -> Spot:
    return checkpoint.instance, checkpoint.number
