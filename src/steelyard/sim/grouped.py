"""Groupings by cost of a scenario's edges: one bank for all of their schedulers, one for all who learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from steelyard.grouping import CompiledGrouping, Grouping
from steelyard.grouping.protocol import learns, traffic_bytes
from steelyard.kernels import cluster_state as state
from steelyard.kernels.cluster_groupings import (
    RULE,
    Groupings,
    more_slots,
    run_by_cost,
)
from steelyard.kernels.cluster_loop import run_until
from steelyard.kernels.cluster_state import Cluster, Rows
from steelyard.sim.dataflow import Edge
from steelyard.sim.layout import Layout
from steelyard.sim.plain_groupings import PlainGroupings, PlainState

MESSAGES = pa.schema(
    [
        ("sender", pa.string()),
        ("receiver", pa.string()),
        ("grouping", pa.string()),
        *((name, pa.int64()) for name in ("matrices", "requests", "replies", "epochs", "bytes")),
    ]
)
FIRST_SLOTS = 4

Bank = TypeVar("Bank", bound=tuple[Any, ...])


class Grouped:
    """Schedulers and instances of all edges whose grouping goes by cost, if there are any; they know nothing yet."""

    def __init__(self, layout: Layout, edges: Rows) -> None:
        self._layout = layout
        self._edges = [row for row in edges if row["grouping"] == state.BY_COST]
        numbers = [n for n, row in zip(layout.edges, edges, strict=True) if row["grouping"] == state.BY_COST]
        self._ends = [layout.scenario.edges[number] for number in numbers]
        self._groupings: Groupings | None = None
        self._plain: PlainGroupings | None = None
        found = [_grouping_of(edge) for edge in self._ends]
        if not all(isinstance(one, CompiledGrouping) for one in found):
            senders = [layout.ends_of(number) for number in numbers]
            self._plain = PlainGroupings(list(zip(self._edges, found, senders, strict=True)))
        elif self._edges:
            self._groupings = _groupings_of(layout, edges)

    def run(self, cluster: Cluster, until: float) -> int:
        """Run the event loop; tells why it came back."""
        if self._plain is not None:
            return self._plain.run(cluster, until)
        if self._groupings is None:
            return int(run_until(cluster, until))
        while (outcome := run_by_cost(cluster, self._groupings, until)) == state.NEEDS_SLOTS:
            self._groupings = more_slots(self._groupings)
        return int(outcome)

    def state(self) -> Groupings | PlainState | None:
        """What everybody knows, and matrices under way."""
        return self._plain.state() if self._plain is not None else _copied(self._groupings)

    def restore(self, saved: Groupings | PlainState | None) -> None:
        """Go on from there; messages since then stay counted."""
        if isinstance(saved, PlainState):
            assert self._plain is not None
            self._plain.restore(saved)
            return
        traffic = self._groupings.schedulers.traffic if self._groupings else np.zeros(0)
        self._groupings = _copied(saved)
        if self._groupings:
            self._groupings.schedulers.traffic[:] = traffic

    def messages(self) -> pa.Table:
        """What schedulers and instances of each edge have sent each other."""
        rows = []
        for number, (row, edge) in enumerate(zip(self._edges, self._ends, strict=True)):
            if self._plain is not None:
                *traffic, size = self._plain.traffic[number]
                rows.append((edge.sender, edge.receiver, _grouping_of(edge).name, *traffic, None, size))
                continue
            assert self._groupings is not None
            groupings, rule = self._groupings, self._groupings.rules[row["rule"]]
            first = row["first_scheduler"]
            traffic = groupings.schedulers.traffic[first : first + rule["schedulers"]].sum(axis=0).tolist()
            matrices, requests, replies, _ = traffic
            cells = 2 * int(groupings.depths[row["rule"]] * rule["columns"])
            name = _grouping_of(edge).name
            size = traffic_bytes(matrices, requests, replies, cells)
            rows.append((edge.sender, edge.receiver, name, *traffic, size))
        return pa.Table.from_pylist([dict(zip(MESSAGES.names, row, strict=True)) for row in rows], schema=MESSAGES)


def summed(tables: Sequence[pa.Table]) -> pa.Table:
    """One row for each edge, with what all tables count."""
    whole = pa.concat_tables(tables)
    numbers = MESSAGES.names[3:]
    found = whole.group_by(MESSAGES.names[:3], use_threads=False).aggregate([(name, "sum") for name in numbers])
    return found.rename_columns([name.removesuffix("_sum") for name in found.column_names]).select(MESSAGES.names)


def number_schedulers(layout: Layout, edges: Rows) -> None:
    """Write into the edges that go by cost where their schedulers and instances are."""
    rules = schedulers = learners = 0
    for row, number in zip(edges, layout.edges, strict=True):
        if row["grouping"] == state.BY_COST:
            senders, receivers = layout.ends_of(number)
            row["rule"], row["reports"] = rules, learns(_grouping_of(layout.scenario.edges[number]))
            row["first_scheduler"], row["first_learner"] = schedulers, learners
            rules, schedulers, learners = rules + 1, schedulers + senders, learners + receivers


def _grouping_of(edge: Edge) -> Grouping:
    found = edge.by_cost()
    assert found is not None
    return found


def _groupings_of(layout: Layout, edges: Rows) -> Groupings:
    grouped = [row for row in range(len(edges)) if edges["grouping"][row] == state.BY_COST]
    banks = []
    for row in grouped:
        senders, receivers = layout.ends_of(layout.edges[row])
        found = _grouping_of(layout.scenario.edges[layout.edges[row]])
        assert isinstance(found, CompiledGrouping)
        banks.append(found.banks(receivers, senders))
    rules = np.zeros(len(banks), RULE)
    for number, bank in enumerate(banks):
        rules[number] = tuple(bank.rule)
    schedulers = _merged([bank.schedulers for bank in banks])
    return Groupings(
        rules=rules,
        hashes=_stacked([bank.hashes[None] for bank in banks]),
        depths=np.array([len(bank.hashes) for bank in banks]),
        schedulers=schedulers,
        learners=_merged([bank.learners for bank in banks]),
        edge_of=np.repeat(grouped, [len(bank.schedulers.status) for bank in banks]),
        costs=np.zeros((1, schedulers.loads.shape[1])),
        matrices=np.zeros((FIRST_SLOTS, *schedulers.cells.shape[2:])),
        readers=np.zeros(FIRST_SLOTS, np.int64),
    )


def _merged(banks: Sequence[Bank]) -> Bank:
    """One bank with the rows of all."""
    return type(banks[0])(*(_stacked(parts) for parts in zip(*banks, strict=True)))


def _stacked(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """All rows in one array, with zeros where some are larger than others."""
    most = np.max([part.shape[1:] for part in parts], axis=0)
    grown = [np.pad(part, [(0, 0), *((0, int(n)) for n in most - part.shape[1:])]) for part in parts]
    return np.ascontiguousarray(np.concatenate(grown))


def _copied(groupings: Groupings | None) -> Groupings | None:
    if groupings is None:
        return None
    parts: dict[str, Any] = {}
    for name, part in groupings._asdict().items():
        parts[name] = part.copy() if isinstance(part, np.ndarray) else type(part)(*(one.copy() for one in part))
    return Groupings(**parts)
