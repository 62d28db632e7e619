"""What a policy sees of a simulated cluster: the newest interval of its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.core import InstanceObservation, Observation, OperatorObservation, OptionError, WorkerObservation
from steelyard.core.dataflow import Route
from steelyard.sim.dataflow import Edge
from steelyard.sim.scenario import Scenario, Vertex

Columns = Mapping[str, Any]
"""Arrays by name, as long as each other."""


def observed(
    scenario: Scenario,
    intervals: Sequence[Columns],
    of_sources: Sequence[Columns],
    of_machines: Sequence[Columns],
    latency: Mapping[float, float] | None = None,
) -> Observation:
    """The newest interval.

    Parameters
    ----------
    scenario
        What runs.
    intervals, of_sources, of_machines
        What `SimulationResult` has of all instances, sources and machines, interval by interval.
    latency
        Ages of tuples that left in it, by percentile.
    """
    if not intervals:
        raise OptionError("there is nothing to see of a simulation that did not advance")
    now, machines = intervals[-1], of_machines[-1]
    time, seconds = float(now["time"][0]), float(now["seconds"][0])
    instances = _instances(scenario, now, of_sources, seconds)
    sent = {name: sum(one.sent_per_second for one in each) for name, each in instances.items()}
    operators = []
    for name, each in instances.items():
        received = {
            edge.sender: sent[edge.sender] * _portion(scenario, edge)
            for edge in scenario.edges
            if edge.receiver == name
        }
        operators.append(OperatorObservation.of(name, each, received))
    names = [f"{name}#{number}" for name, number in zip(now["operator"], now["instance"], strict=True)]
    placement = dict(zip(names, now["machine"].tolist(), strict=True))
    workers = tuple(_worker(machines, row, seconds) for row in range(len(machines["machine"])))
    return Observation(time, seconds, tuple(operators), placement=placement, workers=workers, latency=latency)


def _instances(
    scenario: Scenario, now: Columns, of_sources: Sequence[Columns], seconds: float
) -> dict[str, list[InstanceObservation]]:
    found: dict[str, list[InstanceObservation]] = {vertex.name: [] for vertex in scenario.operators}
    logs = _logs(of_sources[-1], of_sources[-2] if len(of_sources) > 1 else None, seconds)
    names = [name for name in _COLUMNS if name in now]
    rows = zip(*(now[name].tolist() for name in names), strict=True)
    for operator, number, row in zip(now["operator"], now["instance"].tolist(), rows, strict=True):
        own = dict(zip(names, row, strict=True))
        of_log = logs.get((operator, number), {})
        found[operator].append(_instance(scenario.operator(operator), number, own, seconds, of_log))
    return found


def _instance(
    vertex: Vertex, number: int, own: Mapping[str, float], seconds: float, of_log: Mapping[str, Any]
) -> InstanceObservation:
    of_threads = own["threads"] * seconds
    busy, held = own["busy_seconds"] / of_threads, own["backpressured_seconds"] / of_threads
    places = vertex.capacity
    return InstanceObservation(
        f"{vertex.name}#{number}",
        processed_per_second=own["processed"] / seconds,
        sent_per_second=own["sent"] / seconds,
        busy=busy,
        backpressured=held,
        idle=max(1 - busy - held, 0.0),
        useful=busy,
        cpu=own["useful_seconds"] / of_threads,
        queue=float(own["queue"]),
        queue_filled=own["queue"] / places if places else 0.0,
        state_bytes=own.get("state_bytes"),
        **of_log,
    )


_COLUMNS = (
    "threads",
    "processed",
    "sent",
    "busy_seconds",
    "backpressured_seconds",
    "useful_seconds",
    "queue",
    "state_bytes",
)
"""What of an instance's interval is shown; how large states are is not known of all simulations."""


def _logs(now: Columns, before: Columns | None, seconds: float) -> dict[tuple[str, int], dict[str, float]]:
    """By source and partition: what came, and what is not read. Other partitions than before share what those had."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for name in dict.fromkeys(now["source"]):
        rows = {one: now[one][now["source"] == name] for one in ("arrived", "lag", "lag_seconds", "partition")}
        count = len(rows["partition"])
        was = {one: before[one][before["source"] == name] if before else np.zeros(count) for one in ("arrived", "lag")}
        was = {one: old if len(old) == count else np.full(count, old.sum() / count) for one, old in was.items()}
        for row, partition in enumerate(rows["partition"].tolist()):
            found[name, partition] = {
                "arrived_per_second": float(rows["arrived"][row] - was["arrived"][row]) / seconds,
                "end_offset": float(rows["arrived"][row]),
                "lag": float(rows["lag"][row]),
                "lag_per_second": float(rows["lag"][row] - was["lag"][row]) / seconds,
                "lag_seconds": float(rows["lag_seconds"][row]),
            }
    return found


def _worker(machines: Columns, row: int, seconds: float) -> WorkerObservation:
    cores = float(machines["cores"][row])
    known = {name: float(machines[name][row]) for name in ("sent_bytes", "memory_bytes") if name in machines}
    return WorkerObservation(
        int(machines["machine"][row]),
        float(machines["cpu"][row]) * cores,
        cores,
        known["sent_bytes"] / seconds if "sent_bytes" in known else None,
        known.get("memory_bytes"),
    )


def _portion(scenario: Scenario, edge: Edge) -> float:
    """Of the tuples that a sender puts out on all its edges together, those that go over one of them."""

    def put_out(one: Edge) -> float:
        return one.share * (scenario.operator(one.receiver).parallelism if one.wiring is Route.BROADCAST else 1)

    return put_out(edge) / sum(put_out(one) for one in scenario.edges if one.sender == edge.sender)
