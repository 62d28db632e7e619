"""Runs a scenario as flows, in steps of time: for hours that tuple by tuple would take too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core import Action, Observation, OptionError
from steelyard.core.needs import OF_SCENARIOS
from steelyard.core.weights import Weights
from steelyard.kernels.fluid import NONE, run_steps
from steelyard.sim.effects import tell_like_hash, tell_lone_receivers
from steelyard.sim.flows import carried, flow_of, like_hash, state_bytes, weigh
from steelyard.sim.layout import layout_of
from steelyard.sim.observed import observed
from steelyard.sim.results import SimulationResult
from steelyard.sim.scenario import Scenario
from steelyard.sim.weighing import held_weights, more_weights, rescaled_by
from steelyard.workloads import Rate

STEP = 0.1
"""Seconds; queues that fill or drain faster than that are not seen."""
NOISE_SECONDS = 15.0
"""For which costs of work that varies stay what they are."""
SUMS = ("received", "processed", "sent", "busy", "worked", "blocked", "area", "peak")


class FluidSimulation:
    """A scenario that runs as flows, and can be rescaled on the way.

    Flows know mean rates, and not chance: throughput, lag and utilisation come out as tuple by tuple, but a queue that
    only chance fills stays empty. Network costs are left out.

    Parameters
    ----------
    scenario
        What runs where.
    step
        Seconds of a step.
    downtime
        Seconds that a stop and a restart take when a policy acts on it, while logs grow.
    state_bandwidth
        Bytes per second at which all state is written and read again when it stops and restarts, which takes longer by
        that.
    noise, seed
        Work of each instance is by up to this share dearer or cheaper, drawn anew every 15 seconds, as machines and
        what is measured of them vary.

    Examples
    --------
    >>> from steelyard.sim import Exactly, Operator, Source
    >>> scenario = Scenario.chain(Source("log", rate=100), Operator("map", Exactly(0.02), capacity=10))
    >>> simulation = FluidSimulation(scenario)
    >>> simulation.advance(100)
    >>> simulation.observe().operators[0].lag, round(simulation.observe().operators[1].processed_per_second)
    (4990.0, 50)
    """

    what: ClassVar[str] = "a simulation as flows"
    shows: ClassVar[frozenset[str]] = OF_SCENARIOS - {"latency"} | {"state"}

    def __init__(
        self,
        scenario: Scenario,
        step: float = STEP,
        downtime: float = 0.0,
        state_bandwidth: float = inf,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not step > 0:
            raise OptionError(f"step of a simulation must be above 0 seconds, got {step!r}")
        if not state_bandwidth > 0:
            raise OptionError(f"state_bandwidth must be above 0 bytes per second, got {state_bandwidth!r}")
        if not 0 <= noise < 1:
            raise OptionError(f"noise must be a share of work below 1, got {noise!r}")
        self.scenario = scenario
        self.step, self.downtime, self.state_bandwidth = step, downtime, state_bandwidth
        self.steps = 0
        self._layout = layout_of(scenario)
        self._flow = flow_of(self._layout)
        self._weights: Weights = {}
        tell_lone_receivers(scenario)
        tell_like_hash(like_hash(self._layout), "all rows of a sample")
        self.noise, self._chance, self._drawn = noise, np.random.default_rng(seed), 0
        self._factors = np.ones(len(self._flow.instances))
        self._paused_until = 0
        self._sampled_at = 0.0
        self._tables: dict[str, list[dict[str, Any]]] = {"instances": [], "sources": [], "machines": []}

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.steps * self.step

    @property
    def ended(self) -> bool:
        """Never: flows go on."""
        return False

    @property
    def pausing(self) -> bool:
        """Whether a rescaling is under way."""
        return self.steps < self._paused_until

    def advance(self, seconds: float) -> None:
        """Go on for so many seconds, rounded to whole steps."""
        last = self.steps + round(seconds / self.step)
        while self.steps < last:
            running = not self.pausing
            until = last if running else min(last, self._paused_until)
            if self.noise:
                self._draw()
                until = min(until, self._drawn)
            times = np.arange(self.steps, until + 1) * self.step
            run_steps(self._flow, self._arrivals(times), self.step, running)
            self.steps = until

    def rescale(self, instances: Mapping[str, int], pause: float = 0.0) -> None:
        """Stop, and go on after `pause` seconds with other numbers of instances. Logs grow while nobody reads.

        What waits in an operator's queues and what it keeps is spread over its new instances.
        """
        if self._sampled_at != self.now:
            self.sample()
        before, self.scenario = self._flow, self.scenario.rescaled(instances)
        self._layout = layout_of(self.scenario)
        self._flow = flow_of(self._layout)
        self._weights = held_weights(self.scenario, self._weights)
        weigh(self._flow, self._layout, self._weights)
        carried(self._flow, before)
        self._factors, self._drawn = np.ones(len(self._flow.instances)), self.steps
        self._paused_until = max(self._paused_until, self.steps + round(pause / self.step))

    def set_weights(self, weights: Weights) -> None:
        """From now on edges that deal tuples out in turn do so in these proportions; the others keep theirs."""
        self._weights = more_weights(self.scenario, self._weights, weights)
        weigh(self._flow, self._layout, self._weights)

    def apply(self, action: Action) -> float:
        """Stop, and go on after a pause with other numbers of instances; other weights hold at once."""
        action.require_only(self.what, "parallelism", "weights")
        rescaled_by(self.scenario, action)
        pause = 0.0
        if action.parallelism:
            pause = self.downtime + self.state_bytes / self.state_bandwidth
            self.rescale(action.parallelism, pause)
        self.set_weights(action.weights)
        return pause

    @property
    def state_bytes(self) -> float:
        """What all instances keep."""
        return float(state_bytes(self._layout, self._flow).sum())

    def observe(self) -> Observation:
        """The interval since the last look, which is closed; at the same moment again, the same."""
        self.sample()
        tables = self._tables
        seen = observed(self.scenario, tables["instances"], tables["sources"], tables["machines"])
        return replace(seen, weights=held_weights(self.scenario, self._weights) or None)

    def sample(self) -> None:
        """Close an interval of the metrics."""
        seconds = self.now - self._sampled_at
        if seconds <= 0:
            return
        rows = self._flow.instances
        counts = [vertex.parallelism for vertex in self.scenario.operators]
        names = np.repeat([vertex.name for vertex in self.scenario.operators], counts)
        numbers = np.concatenate([np.arange(count) for count in counts])
        time = np.full(len(rows), self.now)
        of_threads = rows["threads"] * seconds
        self._tables["instances"].append(
            {
                "time": time,
                "seconds": np.full(len(rows), seconds),
                "operator": names,
                "instance": numbers,
                "machine": rows["machine"].copy(),
                "threads": rows["threads"].astype(np.int32),
                **{name: rows[name].copy() for name in ("received", "processed", "sent")},
                "useful_seconds": rows["worked"].copy(),
                "busy_seconds": rows["busy"].copy(),
                "backpressured_seconds": rows["blocked"].copy(),
                "idle_seconds": np.maximum(of_threads - rows["busy"] - rows["blocked"], 0.0),
                "waited_seconds": rows["area"].copy(),
                "queue_mean": rows["area"] / seconds,
                "queue": rows["queue"].copy(),
                "queue_peak": rows["peak"].copy(),
                "state_bytes": state_bytes(self._layout, self._flow),
            }
        )
        work = np.bincount(rows["machine"], rows["worked"], len(self._flow.machines))
        self._tables["machines"].append(
            {
                "time": np.full(len(work), self.now),
                "machine": np.arange(len(work)),
                "cores": self._flow.machines["cores"].copy(),
                "cpu": work / (self._flow.machines["cores"] * seconds),
            }
        )
        self._sample_sources(names, numbers)
        for name in SUMS:
            rows[name] = 0.0
        self._sampled_at = self.now

    def result(self) -> SimulationResult:
        """All that was sampled so far; `events` are the steps."""
        tables = {
            name: pa.table({column: np.concatenate([part[column] for part in parts]) for column in parts[0]})
            for name, parts in self._tables.items()
            if parts
        }
        return SimulationResult(scenario=self.scenario, seed=0, seconds=self.now, events=self.steps, ages={}, **tables)

    def _draw(self) -> None:
        """Other costs of work, where it is time for them."""
        if self.steps < self._drawn:
            return
        self._drawn = self.steps + max(round(NOISE_SECONDS / self.step), 1)
        drawn = 1.0 + self.noise * self._chance.uniform(-1.0, 1.0, len(self._factors))
        for what in ("service", "growth", "result_seconds"):
            self._flow.instances[what] *= drawn / self._factors
        self._factors = drawn

    def _arrivals(self, times: Any) -> Any:
        """float64[steps, partitions]: rows that come to each log in each step."""
        columns = []
        for source in self._layout.sources:
            assert isinstance(source.rate, Rate)
            rows = source.rate.rows_until(times)
            rows = np.minimum(rows, source.rows) if source.rows else rows
            columns.append(np.repeat(np.diff(rows)[:, None] / source.parallelism, source.parallelism, axis=1))
        return np.ascontiguousarray(np.concatenate(columns, axis=1))

    def _sample_sources(self, names: Any, numbers: Any) -> None:
        rows = self._flow.instances
        of_sources = np.flatnonzero(rows["source"] != NONE)
        arrived, waiting = np.empty(len(of_sources)), np.empty(len(of_sources))
        lag = rows["queue"][of_sources]
        for source in self._layout.sources:
            assert isinstance(source.rate, Rate)
            own = names[of_sources] == source.name
            come = float(source.rate.rows_until(self.now))
            come = min(come, source.rows) if source.rows else come
            arrived[own] = come / source.parallelism
            oldest = source.rate.time_of_row((arrived[own] - lag[own]) * source.parallelism)
            waiting[own] = np.maximum(self.now - oldest, 0.0)
        self._tables["sources"].append(
            {
                "time": np.full(len(of_sources), self.now),
                "source": names[of_sources],
                "partition": numbers[of_sources],
                "arrived": arrived,
                "read": arrived - lag,
                "lag": lag.copy(),
                "lag_seconds": np.where(lag > 1e-6, waiting, 0.0),
            }
        )
