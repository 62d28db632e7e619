"""Where the parts of a scenario are in the arrays of the event loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.sim.dataflow import Source
from steelyard.sim.scenario import Scenario


@dataclass(frozen=True)
class Layout:
    """Which rows of the arrays belong to what."""

    scenario: Scenario
    first_instance: dict[str, int]
    edges: tuple[int, ...]
    """For each row of `cluster.edges`, the number of the edge in the scenario."""

    @property
    def sources(self) -> list[Source]:
        """The scenario's sources."""
        return [vertex for vertex in self.scenario.operators if isinstance(vertex, Source)]

    def instances_of(self, name: str) -> slice:
        """The rows of a vertex's instances."""
        first = self.first_instance[name]
        return slice(first, first + self.scenario.operator(name).parallelism)

    def ends_of(self, number: int) -> tuple[int, int]:
        """How many instances send and receive on an edge of the scenario."""
        edge = self.scenario.edges[number]
        return self.scenario.operator(edge.sender).parallelism, self.scenario.operator(edge.receiver).parallelism


def layout_of(scenario: Scenario) -> Layout:
    """Instances vertex by vertex, edges by their sender."""
    counts = [vertex.parallelism for vertex in scenario.operators]
    firsts = np.cumsum([0, *counts[:-1]]).tolist()
    names = [vertex.name for vertex in scenario.operators]
    order = sorted(range(len(scenario.edges)), key=lambda number: names.index(scenario.edges[number].sender))
    return Layout(scenario, dict(zip(names, firsts, strict=True)), tuple(order))
