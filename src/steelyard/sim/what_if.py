"""What would a dataflow do on other machines? The scenario of one that has run, and a table of answers.

Costs, rates, shares of instances and latencies come from what an engine measured (`core.control.Observation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

import numpy as np
import pandas as pd

from steelyard.core.control import Observation, OperatorObservation
from steelyard.core.dataflow import Dataflow, Route
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.core.shown import Shown
from steelyard.core.topology import Instance, Placement
from steelyard.sim.dataflow import Edge, Operator, Source
from steelyard.sim.hardware import Machine, Network
from steelyard.sim.laws import Exactly
from steelyard.sim.run import simulate
from steelyard.sim.scenario import INSTANT, Scenario

SPREAD, DEALT = "spread", "dealt"
PLACEMENTS = {
    SPREAD: "instance i of every operator on machine i, as resident jobs begin",
    DEALT: "all instances to the machines in turn, as Storm does",
}
"""Placements by name."""
SIMULATED_ROWS, SIMULATED_SECONDS = 50_000, 20.0
"""Of the run that latencies are from: no more than either."""
FULL = 0.95
"""Share of the throughput from which on latencies are not told: they depend on little things there."""
IDLE = 1e-6
"""How slow an instance is to which no row comes: it takes its rows in no time."""
WARM = 0.2
"""Share of a simulated run that is not looked at."""
_COLUMNS = {
    "machines": "machines",
    "placement": "placement",
    "instances": "instances",
    "rows_per_second": "rows/s, most",
    "bottleneck": "bottleneck",
    "busy": "busy now, %",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "machine_hours_per_billion_rows": "machine hours per 10^9 rows",
}


@dataclass(frozen=True)
class Answer:
    """What is expected of one number of machines and one placement.

    Parameters
    ----------
    machines, placement, instances
        Where it would run, and in how many instances, all operators together.
    rows_per_second
        Rows that all sources together could read, at most.
    bottleneck
        What would hold it back there: an instance, or a machine whose cores are all busy.
    busy
        Share of that throughput that the rate is that was asked about.
    latency
        Seconds by percentile at the rate that was asked about; None where it cannot keep up, or nearly so, and where
        too few rows come for one to be simulated.
    """

    machines: int
    placement: str
    instances: int
    rows_per_second: float
    bottleneck: str
    busy: float
    latency: Mapping[float, float] | None

    @property
    def machine_hours_per_billion_rows(self) -> float:
        """What it costs, at its highest throughput."""
        return self.machines / self.rows_per_second * 1e9 / 3600


@dataclass(frozen=True, repr=False)
class WhatIf(Shown):
    """Answers, best read as a table; `to_pandas()` gives them as one."""

    ran: Ran
    answers: tuple[Answer, ...]
    notes: tuple[str, ...] = ()

    def to_pandas(self) -> pd.DataFrame:
        """A row for each answer."""
        rows = [
            {
                "machines": one.machines,
                "placement": one.placement,
                "instances": one.instances,
                "rows_per_second": one.rows_per_second,
                "bottleneck": one.bottleneck,
                "busy": one.busy,
                "p50_ms": 1000 * one.latency[50.0] if one.latency else np.nan,
                "p99_ms": 1000 * one.latency[99.0] if one.latency else np.nan,
                "machine_hours_per_billion_rows": one.machine_hours_per_billion_rows,
            }
            for one in self.answers
        ]
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    def answer(self, machines: int, placement: str = "") -> Answer:
        """The answer for a number of machines; the one with the highest throughput, where no placement is named."""
        found = [one for one in self.answers if one.machines == machines and placement in ("", one.placement)]
        if not found:
            asked = sorted({(one.machines, one.placement) for one in self.answers})
            raise OptionError(f"nobody asked about {machines} machines {placement!r}, only about {asked}")
        return max(found, key=lambda one: one.rows_per_second)

    def _lines(self) -> list[list[str]]:
        def number(value: float) -> str:
            return "-" if np.isnan(value) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

        return [
            [
                str(row["machines"]),
                str(row["placement"]),
                str(row["instances"]),
                number(row["rows_per_second"]),
                str(row["bottleneck"]),
                number(100 * row["busy"]),
                number(row["p50_ms"]),
                number(row["p99_ms"]),
                number(row["machine_hours_per_billion_rows"]),
            ]
            for row in self.to_pandas().to_dict("records")
        ]

    def __str__(self) -> str:
        lines = [list(_COLUMNS.values()), *self._lines()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(_COLUMNS))]
        said = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.ran.summary, *said, *self.notes])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS.values())
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in self._lines())
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<p>{escape(self.ran.summary)}</p><table><tr>{head}</tr>{body}</table>{notes}"


@dataclass(frozen=True, eq=False)
class Ran:
    """A dataflow that has run, and what was measured of it.

    Parameters
    ----------
    dataflow
        What ran.
    seen
        What an engine measured while it did.
    network
        What it costs to send a row between machines, beside what was measured: nothing, if not given.
    """

    dataflow: Dataflow
    seen: Observation
    network: Network = field(default_factory=lambda: INSTANT)

    def __post_init__(self) -> None:
        if self.dataflow.cyclic:
            raise OptionError(
                f"{self.dataflow.name!r} has a cycle: what a row costs on its way round is not known here"
            )
        for operator in self.dataflow.operators:
            if not self.of(operator.name).processed_per_second > 0:
                raise OptionError(
                    f"no row came to {operator.name!r} while {self.dataflow.name!r} was measured, so that nobody knows "
                    "what one costs there: ask when it has worked on some"
                )

    def of(self, operator: str) -> OperatorObservation:
        """What was seen of an operator."""
        for one in self.seen.operators:
            if one.name == operator:
                return one
        raise OptionError(f"nothing was measured of {operator!r}: ask when {self.dataflow.name!r} has run for a while")

    @cached_property
    def workers(self) -> int:
        """That it ran on."""
        return len(set(self.seen.placement.values())) or 1

    @property
    def rate(self) -> float:
        """Rows per second that all sources give."""
        return sum(self.of(one.name).sent_per_second for one in self.dataflow.sources)

    @property
    def summary(self) -> str:
        """What was measured, in a line."""
        each = [f"{one.name} {1e6 * self.cost(one.name):,.3g} µs" for one in self.dataflow.operators]
        return f"{self.dataflow.name} on {self.workers} workers: {self.rate:,.0f} rows/s; per row {', '.join(each)}"

    def cost(self, operator: str) -> float:
        """Seconds that an instance is busy with a row."""
        one = self.of(operator)
        return one.parallelism * one.busy / self._rows(operator)

    def cpu(self, operator: str) -> float:
        """Share of that in which it uses a processor; 1 where nobody measured it."""
        one = self.of(operator)
        return 1.0 if one.cpu is None or not one.busy else min(1.0, one.cpu / one.busy)

    def visits(self, operator: str) -> float:
        """Rows that come to it for each that the sources give."""
        return self._rows(operator) / self.rate

    def _rows(self, operator: str) -> float:
        """Rows per second that come to it; of a source those that it gives, which may be fewer than it reads."""
        one = self.of(operator)
        return one.processed_per_second if self.dataflow.by_name[operator].ports else one.sent_per_second

    def shares(self, operator: str, parallelism: int) -> Floats:
        """Of an operator's rows, by instance, greatest first.

        Where there are as many instances as ran, they are those that were measured. With others, what the fullest
        instance had beyond an equal share is taken to be one key's, which stays whole; the rest is dealt out evenly.
        """
        rates = np.array([one.processed_per_second for one in self.of(operator).instances])
        measured = np.sort(rates / rates.sum())[::-1]
        if len(measured) == parallelism:
            return measured
        hot = max(0.0, float(measured[0]) - 1.0 / len(measured))
        found = np.full(parallelism, (1.0 - hot) / parallelism)
        found[0] += hot
        return found

    @cached_property
    def cores(self) -> float | None:
        """Of a worker: its share of the cores of one machine, on which all are taken to be; None where nobody knows."""
        known = [one.cores for one in self.seen.workers]
        return sum(known) / len(known) ** 2 if known else None

    def on(self, machines: int, parallelism: Mapping[str, int] | None = None) -> Dataflow:
        """The dataflow as it would run there: as many instances per machine as now, but for what is named."""
        if machines < 1:
            raise OptionError(f"machines must be 1 or more, got {machines!r}")
        keyed = {edge.receiver for edge in self.dataflow.edges if edge.grouping.route is Route.HASH}
        numbers = {}
        for one in self.dataflow.operators:
            most = self.dataflow.groups if one.name in keyed else one.parallelism * machines
            single = one.parallelism == 1 and one.ports > 0 and one.name in keyed
            numbers[one.name] = 1 if single else min(most, max(1, round(one.parallelism * machines / self.workers)))
        return self.dataflow.rescaled({**numbers, **(parallelism or {})})

    def capacity(self, dataflow: Dataflow, placement: Placement, cores: float) -> tuple[float, str]:
        """Rows per second that sources could read at most, and what holds them back.

        A thread can be busy all the time, a machine with all of its cores. Where both nearly are, it is less: up to a
        fifth, as the simulator has it, since the thread waits for a core now and then. What forward edges join on a
        machine runs in one thread.
        """
        heads = _heads(dataflow, placement)
        thread: dict[Instance, float] = {}
        machine = np.zeros(placement.workers)
        for one in dataflow.operators:
            work = self.visits(one.name) * self.cost(one.name)
            copies = self._copies(one.name, one.parallelism)
            for number, share in enumerate(self.shares(one.name, one.parallelism)):
                instance = Instance(one.name, number)
                own = copies * work * float(share)
                thread[heads[instance]] = thread.get(heads[instance], 0.0) + own
                machine[placement.worker_of[instance]] += own * self.cpu(one.name)
        fullest, seconds = max(thread.items(), key=lambda item: item[1])
        busiest = int(machine.argmax())
        if machine[busiest] / cores > seconds:
            return cores / float(machine[busiest]), f"cores of machine {busiest}"
        return 1.0 / seconds, str(fullest)

    def _copies(self, operator: str, parallelism: int) -> float:
        """How many times as many rows come, where rows are sent to all instances of which there are others now."""
        into = self.dataflow.into(operator)
        broadcast = bool(into) and all(edge.grouping.route is Route.BROADCAST for edge in into)
        return parallelism / self.of(operator).parallelism if broadcast else 1.0

    def scenario(self, dataflow: Dataflow, placement: Placement, cores: float, rate: float) -> Scenario:
        """The same for the simulator: rows that come at random, instances whose shares differ work slower or faster.

        A thread that waits half of its time leaves its core to others, so that a machine has twice as many of them.
        """
        together = sum(self.visits(one.name) * self.cost(one.name) for one in dataflow.operators)
        used = sum(self.visits(one.name) * self.cost(one.name) * self.cpu(one.name) for one in dataflow.operators)
        machine = Machine(cores=cores * together / max(used, 1e-12))
        vertices: list[Source | Operator] = []
        for one in dataflow.operators:
            seen, where = self.of(one.name), tuple(placement.of(one.name))
            law = Exactly(self.cost(one.name))
            if not one.ports:
                of_source = rate * seen.sent_per_second / self.rate
                vertices.append(
                    Source(one.name, of_source, one.parallelism, arrivals="poisson", service=law, machines=where)
                )
                continue
            slow = tuple(np.maximum(self.shares(one.name, one.parallelism) * one.parallelism, IDLE).tolist())
            outputs = seen.sent_per_second / seen.processed_per_second
            vertices.append(Operator(one.name, law, one.parallelism, outputs=outputs, slowdown=slow, machines=where))
        edges = dict.fromkeys((edge.sender, edge.receiver, _grouping(edge.grouping.route)) for edge in dataflow.edges)
        return Scenario(
            tuple(vertices), tuple(Edge(*one) for one in edges), placement.workers * (machine,), self.network
        )

    def latency(self, dataflow: Dataflow, placement: Placement, cores: float, rate: float) -> dict[float, float] | None:
        """Simulated ages of what leaves, in seconds by percentile; None where nothing does while it is looked at."""
        hops = sum(self.visits(one.name) for one in dataflow.operators)
        seconds = min(SIMULATED_SECONDS, SIMULATED_ROWS / (rate * max(hops, 1e-9)))
        result = simulate(self.scenario(dataflow, placement, cores, rate), seconds, seed=1)
        found = result.latency(after=WARM * seconds)
        return dict(found.percentiles) if found.tuples else None


def what_if(
    ran: Ran,
    machines: Sequence[int],
    placements: Sequence[str] = tuple(PLACEMENTS),
    *,
    cores: float | None = None,
    parallelism: Mapping[str, int] | None = None,
    rate: float | None = None,
) -> WhatIf:
    """Answers for numbers of machines and placements, from what was measured."""
    for name in placements:
        if name not in PLACEMENTS:
            raise OptionError.unknown("placement", name, PLACEMENTS)
    shared = []
    if cores is None:
        cores = ran.cores
        if cores is None:
            raise OptionError("nobody measured how many cores a worker has: give cores=, those of each machine")
        together = len(ran.seen.workers)
        if together > 1:
            shared = [
                f"All {together} workers were taken to share one machine's {together * cores:g} cores: give cores= "
                "where each has its own."
            ]
    if not cores > 0:
        raise OptionError(f"cores of a machine must be above 0, got {cores!r}")
    wanted = ran.rate if rate is None else rate
    if not wanted > 0:
        raise OptionError(f"rate must be above 0 rows per second, got {rate!r}")
    beside, notes = _beside(ran, cores)
    of_rate = "the present rate" if rate is None else f"{_rows(wanted)} rows/s"
    notes = [f"Latencies are of {of_rate}; '-' where it is above 95 % of the highest.", *notes, *shared]
    answers, few = [], False
    for number in machines:
        dataflow = ran.on(number, parallelism)
        for name in placements:
            made = Placement.spread(dataflow, number) if name == SPREAD else Placement.dealt(dataflow, number, {})
            most, why = ran.capacity(dataflow, made, cores)
            latency = None
            if wanted <= FULL * most:
                ages = ran.latency(dataflow, made, cores, wanted)
                latency = {of: age + beside for of, age in ages.items()} if ages else None
                few = few or ages is None
            answers.append(Answer(number, name, len(dataflow.instances), most, why, wanted / most, latency))
    if few:
        notes.append(f"'-' also where {_rows(wanted)} rows/s are too few rows in {SIMULATED_SECONDS:g} s to simulate.")
    return WhatIf(ran, tuple(answers), tuple(notes))


def _rows(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _beside(ran: Ran, cores: float) -> tuple[float, list[str]]:
    """Seconds of the measured median that the simulation of the same does not explain, and what a reader must know."""
    if ran.seen.latency is None:
        return 0.0, ["No latency was measured: what batches wait on their way is not in them."]
    placed = {Instance.parse(name): at for name, at in ran.seen.placement.items()}
    workers = max(placed.values(), default=0) + 1
    known = Placement(placed, workers)
    most, _ = ran.capacity(ran.dataflow, known, cores)
    if ran.rate > FULL * most:
        full = "It ran as fast as it could, so that what was measured of latencies is its queues: those told here are "
        return 0.0, [f"{full}of waits and work alone, without what batches wait on their way."]
    explained = ran.latency(ran.dataflow, known, cores, ran.rate)
    if explained is None:
        few = f"It read too few rows in {SIMULATED_SECONDS:g} s to be simulated: "
        return 0.0, [f"{few}what batches wait on their way is not in latencies."]
    return max(0.0, ran.seen.latency[50.0] - explained[50.0]), []


def _grouping(route: Route) -> str:
    return route.value if route in (Route.FORWARD, Route.BROADCAST) else Route.SHUFFLE.value


def _heads(dataflow: Dataflow, placement: Placement) -> dict[Instance, Instance]:
    """In whose thread each instance runs: that of the only one that sends to it, where an edge leads forward to it on
    the same machine."""
    heads = {one: one for one in dataflow.instances}
    for one in dataflow.operators:  # senders before receivers, since a dataflow is written so
        into = dataflow.into(one.name)
        if len(into) != 1 or into[0].grouping.route is not Route.FORWARD:
            continue
        for number in range(one.parallelism):
            own, before = Instance(one.name, number), Instance(into[0].sender, number)
            if placement.worker_of[own] == placement.worker_of[before]:
                heads[own] = heads[before]
    return heads
