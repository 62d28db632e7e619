"""What rows cost where they are executed, and how those who send them hear of it.

A batch brings requests for synchronisation along as its note. The instance that executes it measures, and reports back
through the same channel, against its direction: matrices to all senders, replies to the one that asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core import Observing
from steelyard.core.dataflow import Dataflow, Edge, Route
from steelyard.core.topology import Channel
from steelyard.grouping.protocol import Grouping, Matrices, Reply, Requests, Sparing, item_column, learns
from steelyard.grouping.slicing import Slicer
from steelyard.grouping.splitting import TimeSplitter
from steelyard.partition.registry import edge_policy
from steelyard.resident.keys import key_ids
from steelyard.resident.reports import arrays_bytes, bytes_arrays, now, packed_reports

SLICE_SECONDS, CALL_SHARE = 0.02, 0.02
"""A message is cut only where it takes longer: what cutting it takes is capacity lost, and near saturation dear."""
_LEARNT = "learnt/"
"""Before the names of an instance's arrays in a state."""
_TOGETHER = 32
"""Slices that are learnt from at once: one by one, that would take a few percent of the time of short rows."""
LEARNING_SHARE, _FIRST_SECONDS = 0.005, 0.2
"""Learning takes no larger share of an instance's time, beside what replies ask for; at first all is learnt."""


MATRICES_APART = 0.25
"""Seconds of work from one report of matrices to the next, at least: each is some kilobytes, and work for both ends."""


def schedulers_of(dataflow: Dataflow, edge: int) -> tuple[int, int]:
    """The number of an edge's first sender among the schedulers that feed the same instances, and how many these are.

    Edges that meet at one input and are grouped alike have their senders numbered through.
    """
    mine = dataflow.edges[edge]
    alike = [
        number
        for number, other in enumerate(dataflow.edges)
        if (other.receiver, other.port, other.grouping) == (mine.receiver, mine.port, mine.grouping)
    ]
    widths = {number: dataflow.by_name[dataflow.edges[number].sender].parallelism for number in alike}
    return sum(width for number, width in widths.items() if number < edge), sum(widths.values())


class _Slice(NamedTuple):
    """Rows that were executed together."""

    channel: int
    size: int
    rows: pa.RecordBatch
    seconds: float
    ended: float
    requests: Requests


class CostMeter:
    """Learns what rows of one input cost an instance, and reports to all who send them.

    Parameters
    ----------
    policy
        The grouping of the edges that lead here.
    instance, instances
        Which one this is, of how many.
    schedulers
        The number of the scheduler at the other end of each channel, and how many there are.
    tell
        By channel: brings a numbered payload to its sender.
    """

    def __init__(
        self,
        policy: Grouping,
        instance: int,
        instances: int,
        schedulers: tuple[Mapping[int, int], int],
        tell: Mapping[int, Callable[[int, bytes], None]],
    ) -> None:
        self._by_channel, total = schedulers
        self._key = (item_column(policy),) if item_column(policy) else ()
        self._learner = policy.instance(instances, instance, total)
        self._sparing = self._learner if isinstance(self._learner, Sparing) else None
        if self._sparing:
            self._sparing.space_out(MATRICES_APART)
        self._splitter = TimeSplitter()
        self._tell = tell
        self._slices: list[_Slice] = []
        self._executed = self._learning = 0.0
        """Seconds in which rows were executed, and in which they were learnt from."""
        self.slicer = Slicer(SLICE_SECONDS, CALL_SHARE)
        self.reported = dict.fromkeys(tell, 0)
        """By channel: reports so far."""

    def prepare(self, schema: pa.Schema) -> None:
        """Load what the first rows would have to wait for."""
        nothing = pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)
        items = key_ids(nothing, self._key) if self._key else np.empty(0, np.int64)
        self._splitter.split(items, 0.0)
        self._learner.executed(items, np.empty(0), np.empty(0))

    @property
    def wants_more(self) -> bool:
        """Whether rows that come now are learnt from, though nobody asks: learning must not take the time of rows."""
        if self._sparing is None:
            return True
        return self._learning <= LEARNING_SHARE * (self._executed - _FIRST_SECONDS) or self._executed < _FIRST_SECONDS

    def passed_over(self, channel: int, seconds: float) -> None:
        """Rows that came through a channel were executed, took so long, and are not learnt from."""
        self._executed += seconds
        assert self._sparing is not None, "others want all rows"
        self._sparing.passed_over(seconds, self._by_channel[channel])

    def executed(self, channel: int, rows: pa.RecordBatch, seconds: float, requests: Requests) -> None:
        """Rows that came through a channel have just been executed together, and took so long.

        What a request waits for is reported at once; the rest when some slices have come together.
        """
        self._slices.append(_Slice(channel, rows.num_rows, rows.select(self._key), seconds, now(), requests))
        self._executed += seconds
        if len(requests.position) or len(self._slices) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Learn and report what was executed so far."""
        begun = time.perf_counter()
        slices, self._slices = self._slices, []
        for channel, some in groupby(slices, key=lambda one: one.channel):
            self._learn(channel, list(some))
        self._learning += time.perf_counter() - begun

    def _learn(self, channel: int, slices: list[_Slice]) -> None:
        sizes = np.array([one.size for one in slices])
        items = np.zeros(int(sizes.sum()), np.int64)
        if self._key:
            whole = pa.Table.from_batches([one.rows for one in slices]).combine_chunks()
            items = key_ids(whole.to_batches()[0], self._key)
        seconds = np.array([one.seconds for one in slices])
        took = self._splitter.split_each(items, sizes, seconds)
        # A tuple ended as much before its slice as those behind it took.
        behind = np.repeat(np.cumsum(seconds), sizes) - np.cumsum(took)
        ended = np.repeat(np.array([one.ended for one in slices]), sizes) - behind
        requests = Requests.joined([one.requests for one in slices], sizes.tolist())
        reports = self._learner.executed(items, took, ended, requests, self._by_channel[channel])
        replies = any(isinstance(one, Reply) for one in reports)
        reports = [self._trusted(one) if isinstance(one, Matrices) else one for one in reports]
        matrices = [one for one in reports if isinstance(one, Matrices)]
        if replies:
            self._report(channel, packed_reports(reports))
        if matrices:
            payload = packed_reports(matrices)
            for other in self._tell:
                if other != channel or not replies:
                    self._report(other, payload)

    def _trusted(self, found: Matrices) -> Matrices:
        """Matrices as far as what they say of items can be trusted; beyond that, an item takes the mean of all."""
        counts, times = np.moveaxis(found.cells, -1, 0)
        mean, trust = found.time / found.tuples if found.tuples else 0.0, self._splitter.trust
        return replace(found, cells=np.stack([counts, trust * times + (1.0 - trust) * mean * counts], axis=-1))

    def _report(self, channel: int, payload: bytes) -> None:
        self.reported[channel] += 1
        self._tell[channel](self.reported[channel], payload)

    def state(self) -> bytes:
        """What was learnt. A few slices that wait to be are forgotten: all is at rest, and reports would disturb it."""
        self._slices = []
        learnt = {f"{_LEARNT}{name}": array for name, array in self._learner.state().items()}
        return arrays_bytes({**learnt, **self._splitter.state()})

    def restore(self, state: bytes) -> None:
        """Go on with what was learnt."""
        arrays = bytes_arrays(state)
        self._splitter.restore(arrays)
        learnt = {name.removeprefix(_LEARNT): array for name, array in arrays.items() if name.startswith(_LEARNT)}
        self._learner.restore(learnt)


def learns_costs(channel: Channel, dataflow: Dataflow) -> bool:
    """Whether the receiving end of a channel measures what rows cost, and reports to the sending end."""
    grouping = dataflow.edges[channel.edge].grouping
    several = dataflow.by_name[channel.receiver.operator].parallelism > 1
    return grouping.route is Route.COST and several and learns(grouping.policy)


def observes_costs(edge: Edge, dataflow: Dataflow) -> bool:
    """Whether routers of an edge observe what their rows cost, and instances tell them."""
    several = dataflow.by_name[edge.receiver].parallelism
    if edge.grouping.route is not Route.POLICY or several == 1:
        return False
    return isinstance(edge_policy(edge.grouping.policy).router(several), Observing)
