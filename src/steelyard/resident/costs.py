"""What rows cost where they are executed, and how those who send them hear of it.

A batch brings requests for synchronisation along as its note. The instance that executes it measures, and reports back
through the same channel, against its direction: matrices to all senders, replies to the one that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.dataflow import Channel, Dataflow, Route
from steelyard.grouping.compiled import CompiledGrouping
from steelyard.grouping.protocol import Matrices, Reply, Requests
from steelyard.grouping.slicing import Slicer
from steelyard.grouping.splitting import TimeSplitter
from steelyard.resident.reports import arrays_bytes, bytes_arrays, now, packed_reports
from steelyard.resident.routing import key_ids


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
        took = self._splitter.split(items, seconds)
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
