"""The Q table reducer of cooperative Dalton: one table from those of all partitioners, and how often to do so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition.dalton import QTable

Merge = Literal["normalised", "paper"]
Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False)
class SyncMessage:
    """What a partitioner tells the reducer in a round."""

    partitioner: int
    round: int
    now: int
    """All rows before this time are in this round or an earlier one."""
    table: QTable
    """The local Q table."""
    table_rows: Ints
    """int64[h]: rows of each of the table's keys since the last round; what its values weigh."""
    top_keys: Ints
    """int64[...]: the n most frequent keys since the last round."""
    top_rows: Ints
    """int64[...]: their rows."""
    rows: int
    """Rows since the last round."""
    split: Ints
    """int64[...]: keys that may have been split since the last round; for key forwarding."""
    sync_every: int
    """Time between rounds, as the partitioner knows it."""
    proposal: int
    """Time between rounds that it asks for."""

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """As named arrays, to be sent or kept."""
        return {
            "numbers": np.array(
                [self.partitioner, self.round, self.now, self.rows, self.sync_every, self.proposal], np.int64
            ),
            "keys": self.table.keys,
            "values": self.table.values,
            "expiry": self.table.expiry,
            "rows": self.table_rows,
            "topkeys": self.top_keys,
            "toprows": self.top_rows,
            "split": self.split,
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> SyncMessage:
        """The inverse of `arrays`."""
        partitioner, number, now, rows, sync_every, proposal = map(int, arrays["numbers"])
        return cls(
            partitioner=partitioner,
            round=number,
            now=now,
            table=QTable(arrays["keys"], arrays["values"], arrays["expiry"]),
            table_rows=arrays["rows"],
            top_keys=arrays["topkeys"],
            top_rows=arrays["toprows"],
            rows=rows,
            split=arrays["split"],
            sync_every=sync_every,
            proposal=proposal,
        )


@dataclass(frozen=True, eq=False)
class Feedback:
    """What the reducer answers to every partitioner."""

    round: int
    table: QTable
    """The global Q table."""
    load: int
    """Rows of all partitioners in the round, GL."""
    sync_every: int
    """Time between rounds from now on."""
    split: Ints
    """int64[...]: keys that any partitioner may have split in the round."""
    covers: int
    """All rows of all partitioners before this time are in this round or an earlier one."""
    reaches: int
    """No row at or after this time is."""

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """As named arrays, to be sent or kept."""
        return {
            "numbers": np.array([self.round, self.load, self.sync_every, self.covers, self.reaches], np.int64),
            "keys": self.table.keys,
            "values": self.table.values,
            "expiry": self.table.expiry,
            "split": self.split,
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Feedback:
        """The inverse of `arrays`."""
        number, load, sync_every, covers, reaches = map(int, arrays["numbers"])
        table = QTable(arrays["keys"], arrays["values"], arrays["expiry"])
        return cls(number, table, load, sync_every, arrays["split"], covers, reaches)


class QTableReducer:
    """Waits for all partitioners in a round, then merges what they know.

    Parameters
    ----------
    blocks, partitioners
        n and P in the paper.
    sync_every
        Time between rounds at the start.
    initial
        Value of blocks that nobody has tried.
    merge
        How tables are averaged; see `CooperativeDalton`.
    adaptive
        Whether the time between rounds changes.
    idle_factor
        The time is halved when the reducer idled more than so many times as long as it worked.
    """

    def __init__(
        self,
        blocks: int,
        partitioners: int,
        *,
        sync_every: int,
        initial: float = -2.0,
        merge: Merge = "normalised",
        adaptive: bool = True,
        idle_factor: float = 1.0,
    ) -> None:
        self.blocks = blocks
        self.partitioners = partitioners
        self.sync_every = sync_every
        self._initial = initial
        self._merge: Merge = merge
        self._adaptive = adaptive
        self._idle_factor = idle_factor
        self._waiting: dict[int, dict[int, SyncMessage]] = {}
        self._idle_since = 0.0
        self._complete_at = 0.0

    def receive(self, message: SyncMessage, at: float = 0.0) -> None:
        """Take in a message that came at the time `at`, on the reducer's clock."""
        of_round = self._waiting.setdefault(message.round, {})
        if message.partitioner in of_round:
            raise ValueError(f"partitioner {message.partitioner} has sent round {message.round} twice")
        of_round[message.partitioner] = message
        if self.ready:
            self._complete_at = at

    @property
    def ready(self) -> bool:
        """Whether the oldest round has a message of every partitioner."""
        return bool(self._waiting) and len(self._waiting[min(self._waiting)]) == self.partitioners

    def merge(self, *, processing: float = 0.0, at: float | None = None) -> Feedback:
        """Answer the oldest round.

        Parameters
        ----------
        processing
            How long the merge takes on the reducer's clock, measured or simulated; 0 where it is not known, and
            then rounds never come more often.
        at
            When the merge is done; by default, when the round was complete plus `processing`.
        """
        if not self.ready:
            raise ValueError("there is no round with a message of every partitioner: look at `ready` first")
        number = min(self._waiting)
        messages = [self._waiting[number][partitioner] for partitioner in sorted(self._waiting[number])]
        del self._waiting[number]
        idle = max(0.0, self._complete_at - self._idle_since)
        self._idle_since = self._complete_at + processing if at is None else at
        self._complete_at = max(self._complete_at, self._idle_since)
        if self._adaptive:
            self._adapt(max(message.proposal for message in messages), idle, processing)
        load = sum(message.rows for message in messages)
        reaches = max(message.now for message in messages)
        return Feedback(
            round=number,
            table=self._merged(messages, load, reaches),
            load=load,
            sync_every=self.sync_every,
            split=np.unique(np.concatenate([message.split for message in messages])),
            covers=min(message.now for message in messages),
            reaches=reaches,
        )

    def _adapt(self, proposal: int, idle: float, processing: float) -> None:
        if proposal > self.sync_every:
            self.sync_every = proposal
        elif processing > 0 and idle > self._idle_factor * processing:
            self.sync_every = max(1, self.sync_every // 2)

    def _merged(self, messages: list[SyncMessage], load: int, now: int) -> QTable:
        """The global table: keys that are hot for all together, and those of the tables that are not expired."""
        known = [np.r_[message.table.keys, message.top_keys] for message in messages]
        keys = np.unique(np.concatenate(known))
        rows = np.zeros((len(messages), len(keys)), np.int64)
        weighted = np.zeros((len(keys), self.blocks))
        plain = np.zeros((len(keys), self.blocks))
        tables = np.zeros(len(keys), np.int64)
        weight = np.zeros(len(keys), np.int64)
        expiry = np.full(len(keys), now + self.sync_every - 1, np.int64)
        held = np.zeros(len(keys), np.bool_)
        for own, message in zip(rows, messages, strict=True):
            own[np.searchsorted(keys, message.top_keys)] = message.top_rows
            mine = np.searchsorted(keys, message.table.keys)
            own[mine] = message.table_rows
            weighted[mine] += message.table_rows[:, None] * message.table.values
            plain[mine] += message.table.values
            weight[mine] += message.table_rows
            expiry[mine] = np.where(held[mine], np.maximum(expiry[mine], message.table.expiry), message.table.expiry)
            tables[mine] += 1
            held[mine] = True
        # F(k) >= GL / n
        hot = rows.sum(axis=0) >= max(1, -(-load // self.blocks))
        expiry[hot] = np.maximum(expiry[hot], now + self.sync_every - 1)
        kept = hot | (held & (expiry >= now))
        values = np.full((len(keys), self.blocks), self._initial)
        values[held] = self._average(weighted, plain, weight, tables, load)[held]
        return QTable(keys[kept], values[kept], expiry[kept])

    def _average(self, weighted: Floats, plain: Floats, weight: Ints, tables: Ints, load: int) -> Floats:
        if self._merge == "paper":
            # (1 / P) sum_j (f_j(k) / GL) Q_j(k, i), as printed
            return weighted / max(1, load) / self.partitioners
        # sum_j f_j(k) Q_j(k, i) / sum_j f_j(k); keys without rows in the round weigh the same everywhere
        by_rows = weighted / np.maximum(weight, 1)[:, None]
        return np.where(weight[:, None] > 0, by_rows, plain / np.maximum(tables, 1)[:, None])
