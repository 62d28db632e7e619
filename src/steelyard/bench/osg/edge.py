"""A shuffle edge in simulated time: schedulers, k parallel instances with FIFO queues, costs that items decide.

The set-up of Rivetti et al. 2016, section 5.1: tuples come at an even rate, an instance executes its tuples one after
the other in the order of arrival, and control messages arrive when the tuple that they follow has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.grouping import CompiledGrouping, Grouping, grouping
from steelyard.grouping.protocol import traffic_bytes

if TYPE_CHECKING:
    from steelyard.kernels.osg_queues import Flow
    from steelyard.kernels.osg_state import Learners, Schedulers

Numbers = np.ndarray[Any, np.dtype[np.int32]]
LOG_ENTRIES = 4_096
_RUN = 3


@dataclass(frozen=True, eq=False)
class ShuffleEdge:
    """Tuples that are sent over a shuffle edge, and who executes them.

    Parameters
    ----------
    items
        int64[tuples]: the value that each tuple's cost depends on.
    times
        float64[tuples]: how long each takes on an instance of factor 1, in any unit; the times of all results have it.
    instances
        k.
    provisioning
        The highest rate that k instances sustain on average, over the rate at which tuples come: above 1 there is
        capacity to spare.
    schedulers
        How many send tuples, in turn.
    factors
        float64[instances] or [phases, instances]: what times are multiplied by on each instance.
    phase_starts
        First tuple of each phase, where there are several.
    latency
        Of control messages, in the unit of the times.

    Examples
    --------
    A long tuple, a short one, a long one, one per second, on two instances (section 2 of the paper):

    >>> edge = ShuffleEdge(np.array([0, 1, 0]), np.array([10.0, 1.0, 10.0]), instances=2, provisioning=2 / 7)
    >>> edge.run("round_robin").completion.tolist()
    [10.0, 1.0, 18.0]
    >>> edge.run("full_knowledge").completion.tolist()
    [10.0, 1.0, 10.0]
    """

    items: Ints
    times: Floats
    instances: int
    provisioning: float = 1.0
    schedulers: int = 1
    factors: Floats | None = None
    phase_starts: tuple[int, ...] = (0,)
    latency: float = 0.0
    arrivals: Floats = field(init=False, repr=False)
    _factors: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        items, times = np.require(self.items, np.int64, ["C", "W"]), np.require(self.times, np.float64, ["C", "W"])
        if items.ndim != 1 or items.shape != times.shape:
            raise ValueError(f"one time a tuple: got items of shape {items.shape} and times of shape {times.shape}")
        if len(times) and times.min() < 0:
            raise ValueError(f"times cannot be negative, got {times.min()}")
        for option, least in (("instances", 1), ("schedulers", 1), ("latency", 0)):
            if not getattr(self, option) >= least:
                raise OptionError(f"{option} of a shuffle edge must be {least} or more, got {getattr(self, option)}")
        if not self.provisioning > 0:
            raise OptionError(f"provisioning must be above 0, got {self.provisioning}: 1 is as much as is needed")
        factors = np.ones(self.instances) if self.factors is None else np.asarray(self.factors, np.float64)
        factors = np.ascontiguousarray(np.atleast_2d(factors))
        if factors.shape != (len(self.phase_starts), self.instances) or not factors.min() > 0:
            raise OptionError(
                f"factors must be positive, one for each of {self.instances} instances in each of "
                f"{len(self.phase_starts)} phases; got {factors.tolist()}"
            )
        if self.phase_starts[0] != 0 or list(self.phase_starts) != sorted(set(self.phase_starts)):
            raise OptionError(f"phase_starts must begin with 0 and rise, got {self.phase_starts}")
        gap = float(times.mean()) / self.instances * self.provisioning if len(times) else 0.0
        for name, value in (("items", items), ("times", times), ("_factors", factors)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "arrivals", np.arange(len(items)) * gap)

    def run(self, policy: str | Grouping) -> ShuffleRun:
        """All tuples through this grouping, from its start to the end of the last tuple."""
        from steelyard.kernels.osg_queues import simulate  # noqa: PLC0415 - slow to import

        found = grouping(policy)
        if not isinstance(found, CompiledGrouping):
            raise OptionError(
                f"a shuffle edge runs groupings whose loops are compiled, and {found.name!r} is none: simulate it as "
                "Edge('log', 'work', grouping) of a Scenario"
            )
        banks = found.banks(self.instances, self.schedulers)
        flow = self._flow(found)
        events = simulate(*banks, flow, float(self.latency))
        return ShuffleRun(self, found, flow, banks.schedulers, banks.learners, int(events))

    def _flow(self, policy: CompiledGrouping) -> Flow:
        from steelyard.kernels.osg_queues import Flow  # noqa: PLC0415 - slow to import

        rows = len(self.items)
        phases = np.searchsorted(np.asarray(self.phase_starts), np.arange(rows), side="right") - 1
        return Flow(
            items=self.items,
            arrivals=self.arrivals,
            sources=(np.arange(rows) % self.schedulers).astype(np.int32),
            times=self.times,
            factors=self._factors,
            phases=phases.astype(np.int32),
            to=np.zeros(rows, np.int32),
            finish=np.zeros(rows),
            link=np.zeros(rows, np.int64),
            epoch=np.zeros(rows, np.int64),
            carried=np.zeros(rows),
            totals=np.zeros((rows, 4)),
            slot=np.zeros(rows, np.int32),
            mail=np.zeros(rows, np.int64),
            waiting=np.zeros((self._under_way(policy.rule(self.instances).window), *policy.sketch_shape, 2)),
            log=np.zeros((LOG_ENTRIES, 3), np.int64),
            logged=np.zeros(1, np.int64),
        )

    def _under_way(self, window: int) -> int:
        """Most matrices that can be under way at once: an instance sends some after two windows at the earliest."""
        rows = len(self.items)
        most = rows // (2 * window) + self.instances
        window_time = 2 * window * float(self.times.min(initial=np.inf)) * float(self._factors.min())
        if not self.latency or not rows:
            return self.instances
        return int(min(most, self.instances * (self.latency / window_time + 2))) if window_time else most


@dataclass(frozen=True, eq=False)
class ShuffleRun:
    """What became of the tuples of a shuffle edge."""

    edge: ShuffleEdge
    policy: CompiledGrouping
    flow: Flow
    schedulers: Schedulers
    learners: Learners
    events: int
    """Arrivals, ends of tuples, and deliveries of messages."""

    @cached_property
    def completion(self) -> Floats:
        """float64[tuples]: time from sending a tuple to its end."""
        return np.asarray(self.flow.finish - self.flow.arrivals)

    @property
    def mean_completion(self) -> float:
        """Mean of the completion times, L in the paper."""
        return float(self.completion.mean()) if len(self.completion) else 0.0

    @property
    def throughput(self) -> float:
        """Tuples in a unit of time, from the first arrival to the last end."""
        return len(self.flow.finish) / float(self.flow.finish.max()) if len(self.flow.finish) else 0.0

    @property
    def traffic(self) -> dict[str, int]:
        """Control messages of all schedulers: matrices and replies that came, requests that went, epochs begun."""
        counts = self.schedulers.traffic.sum(axis=0).tolist()
        return dict(zip(("matrices", "requests", "replies", "epochs"), counts, strict=True))

    @property
    def traffic_bytes(self) -> int:
        """Bytes of matrices and replies, eight for a number; requests travel with tuples and add two numbers."""
        counts = self.traffic
        return traffic_bytes(
            counts["matrices"], counts["requests"], counts["replies"], self.schedulers.cells[0, 0].size
        )

    @cached_property
    def run_at(self) -> int | None:
        """The tuple before which scheduler 0 first entered RUN, or None."""
        return next((row for row, what, detail in self._log() if what == 1 and detail == _RUN), None)

    @cached_property
    def estimating_at(self) -> int | None:
        """The tuple before which scheduler 0 left round robin, or None."""
        return next((row for row, what, _ in self._log() if what == 1), None)

    @cached_property
    def matrices_at(self) -> list[int]:
        """The tuples before which matrices came to scheduler 0."""
        return [row for row, what, _ in self._log() if what == 0]

    def _log(self) -> list[list[int]]:
        entries: list[list[int]] = self.flow.log[: self.flow.logged[0]].tolist()
        return entries

    def table(self) -> pa.Table:
        """One row a tuple: item, instance, arrival, end and completion time."""
        return pa.table(
            {
                "item": self.flow.items,
                "instance": self.flow.to,
                "arrival": self.flow.arrivals,
                "finish": self.flow.finish,
                "completion": self.completion,
            }
        )

    def __repr__(self) -> str:
        return (
            f"ShuffleRun({self.policy!r}: {len(self.completion)} tuples, {self.edge.instances} instances, mean "
            f"completion {self.mean_completion:.4g}, {sum(self.traffic.values()) - self.traffic['epochs']} messages)"
        )
