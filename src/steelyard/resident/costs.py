"""What rows cost where they are executed, and how those who send them hear of it.

A batch brings requests for synchronisation along as its note. The instance that executes it measures, and reports back
through the same channel, against its direction: matrices to all senders, replies to the one that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.dataflow import Channel, Dataflow, Route
from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.protocol import Matrices, Reply, Requests
from steelyard.grouping.splitting import TimeSplitter
from steelyard.resident.reports import arrays_bytes, bytes_arrays, now, packed_reports
from steelyard.resident.routing import key_ids

SLICE_SECONDS = 0.002
"""Rows are executed together as long as they take no longer than this, by what rows took so far."""
_WHOLE_EVERY = 16
"""Of so many batches one is executed whole, to see what slices cost."""
_DEARER = 1.25
"""Rows that cost so much more in slices than in whole batches are executed in whole batches."""
_WEIGHT = 0.1
"""Of the newest batch in the means that this is decided by."""


def schedulers_of(dataflow: Dataflow, edge: int) -> tuple[int, int]:
    """The number of an edge's first sender among the schedulers that feed the same instances, and how many these are.

    Edges that meet at one input and are grouped alike have their senders numbered through.
    """
    mine = dataflow.edges[edge]
    alike = [
        number
        for number, other in enumerate(dataflow.edges)
        if (other.target, other.port, other.grouping) == (mine.target, mine.port, mine.grouping)
    ]
    widths = {number: dataflow.by_name[dataflow.edges[number].source].parallelism for number in alike}
    return sum(width for number, width in widths.items() if number < edge), sum(widths.values())


class Slicer:
    """How many rows are executed at once, so that the time of each is known well and measuring costs little.

    A row that takes long is executed alone. Rows that are cheap are executed by the hundred: a call costs the same for
    one row as for many. A function that takes about as long for one row as for a batch would be slowed down by that;
    so a batch is executed whole now and then, and where its rows were cheaper, all are, for a while.

    Examples
    --------
    >>> slicer = Slicer()
    >>> slicer.sizes(100)
    [100]
    >>> slicer.took(100, [100], 0.1)
    >>> slicer.sizes(5)
    [2, 2, 1]
    """

    def __init__(self) -> None:
        self._whole = self._sliced = 0.0
        self._batches = 0

    def sizes(self, rows: int) -> list[int]:
        """Rows of each slice of a batch."""
        self._batches += 1
        cost = self._sliced or self._whole
        if rows <= 1 or not cost or self._batches % _WHOLE_EVERY == 0 or self._sliced > _DEARER * self._whole:
            return [rows]
        size = max(1, round(SLICE_SECONDS / cost))
        return [min(size, rows - start) for start in range(0, rows, size)]

    def took(self, rows: int, sizes: Sequence[int], seconds: float) -> None:
        """So long a batch took in slices of these sizes."""
        if not rows:
            return
        cost = seconds / rows
        if len(sizes) > 1:
            self._sliced += (cost - self._sliced) * (_WEIGHT if self._sliced else 1.0)
            return
        self._whole += (cost - self._whole) * (_WEIGHT if self._whole else 1.0)
        if self._sliced > _DEARER * self._whole:  # try slices again when they have been forgotten
            self._sliced *= 1.0 - _WEIGHT


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
        policy: CompiledGrouping,
        instance: int,
        instances: int,
        schedulers: tuple[Mapping[int, int], int],
        tell: Mapping[int, Callable[[int, bytes], None]],
    ) -> None:
        self._by_channel, total = schedulers
        self._column = policy.cost_of
        self._learner = policy.instance(instances, instance, total)
        self._splitter = TimeSplitter()
        self._tell = tell
        self.slicer = Slicer()
        self.told = dict.fromkeys(tell, 0)
        """By channel: reports so far."""

    def prepare(self, schema: pa.Schema) -> None:
        """Load what the first rows would have to wait for."""
        no_rows = pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)
        self._splitter.split(self.items(no_rows), 0.0)
        self._learner.executed(self.items(no_rows), np.empty(0), np.empty(0))

    def items(self, batch: pa.RecordBatch) -> Ints:
        """int64[rows]: what the costs of rows depend on."""
        return key_ids(batch, (self._column,))

    def executed(self, channel: int, items: Ints, seconds: float, requests: Requests) -> None:
        """Rows that came through a channel have just been executed together, and took so long."""
        took = np.array([seconds]) if len(items) == 1 else self._splitter.split(items, seconds)
        ended = now() - seconds + np.cumsum(took)
        reports = self._learner.executed(items, took, ended, requests, self._by_channel[channel])
        replies = [one for one in reports if isinstance(one, Reply)]
        matrices = [one for one in reports if isinstance(one, Matrices)]
        if replies:
            self._report(channel, packed_reports(reports))
        if matrices:
            payload = packed_reports(matrices)
            for other in self._tell:
                if other != channel or not replies:
                    self._report(other, payload)

    def _report(self, channel: int, payload: bytes) -> None:
        self.told[channel] += 1
        self._tell[channel](self.told[channel], payload)

    def state(self) -> bytes:
        """What was learnt."""
        return arrays_bytes({**self._learner.state(), **self._splitter.state()})

    def restore(self, state: bytes) -> None:
        """Go on with what was learnt."""
        arrays = bytes_arrays(state)
        self._splitter.restore(arrays)
        self._learner.restore(arrays)


def learns_costs(channel: Channel, dataflow: Dataflow) -> bool:
    """Whether the receiving end of a channel measures what rows cost, and reports to the sending end."""
    grouping = dataflow.edges[channel.edge].grouping
    several = dataflow.by_name[channel.receiver.operator].parallelism > 1
    return grouping.route is Route.COST and grouping.policy.learns and several
