"""What a policy sees of a simulated cluster: the newest interval of its metrics, summed up by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.core import Observation, OperatorObservation, OptionError
from steelyard.sim.dataflow import Edge, Operator, Source
from steelyard.sim.scenario import Scenario

Columns = Mapping[str, Any]
"""Arrays by name, as long as each other."""


def observed(scenario: Scenario, intervals: Sequence[Columns], of_sources: Sequence[Columns]) -> Observation:
    """The newest interval.

    Parameters
    ----------
    scenario
        What runs.
    intervals, of_sources
        What `SimulationResult` has of all instances and of all sources, interval by interval.
    """
    if not intervals:
        raise OptionError("there is nothing to see of a simulation that did not advance")
    instances, sources, before = intervals[-1], of_sources[-1], of_sources[-2] if len(of_sources) > 1 else None
    time, seconds = float(instances["time"][0]), float(instances["seconds"][0])
    sent = {vertex.name: _sum(instances, "operator", vertex.name, "sent") / seconds for vertex in scenario.vertices}
    operators = []
    for vertex in scenario.vertices:
        received = {
            edge.sender: sent[edge.sender] * _portion(scenario, edge)
            for edge in scenario.edges
            if edge.receiver == vertex.name
        }
        own = {name: _sum(instances, "operator", vertex.name, name) for name in _SUMMED}
        of_threads = own["threads"] * seconds
        busy, held = own["busy_seconds"] / of_threads, own["backpressured_seconds"] / of_threads
        places = vertex.capacity * vertex.instances if isinstance(vertex, Operator) and vertex.capacity else 0
        operators.append(
            OperatorObservation(
                name=vertex.name,
                instances=vertex.instances,
                received_from=received,
                processed_per_second=own["processed"] / seconds,
                busy=busy,
                backpressured=held,
                idle=max(1 - busy - held, 0.0),
                cpu=own["useful_seconds"] / of_threads,
                queue_filled=own["queue"] / places if places else 0.0,
                **(_of_log(vertex.name, sources, before, seconds) if isinstance(vertex, Source) else {}),
            )
        )
    return Observation(time, seconds, tuple(operators))


_SUMMED = ("threads", "processed", "busy_seconds", "backpressured_seconds", "useful_seconds", "queue")


def _of_log(name: str, sources: Columns, before: Columns | None, seconds: float) -> dict[str, float]:
    """What comes to the log of a source, and what it has not read."""
    now = {column: _sum(sources, "source", name, column) for column in ("arrived", "lag")}
    was = {column: _sum(before, "source", name, column) if before else 0.0 for column in now}
    return {
        "arrived_per_second": (now["arrived"] - was["arrived"]) / seconds,
        "lag": now["lag"],
        "lag_per_second": (now["lag"] - was["lag"]) / seconds,
    }


def _portion(scenario: Scenario, edge: Edge) -> float:
    """Of the tuples that a sender puts out on all its edges together, those that go over one of them."""

    def put_out(one: Edge) -> float:
        return one.share * (scenario.vertex(one.receiver).instances if one.grouping == "broadcast" else 1)

    return put_out(edge) / sum(put_out(one) for one in scenario.edges if one.sender == edge.sender)


def _sum(columns: Columns, by: str, name: str, column: str) -> float:
    return float(columns[column][columns[by] == name].sum())
