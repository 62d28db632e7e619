"""Policies of a dataflow that will have nothing to decide: found when a job is made, and told."""

from __future__ import annotations

from steelyard.core import tell_no_effect
from steelyard.core.dataflow import Dataflow, Route


def tell_idle_edges(dataflow: Dataflow) -> None:
    """Tell which edges have a policy or a grouping, and one instance to choose from."""
    for edge in dataflow.edges:
        if edge.grouping.route in (Route.POLICY, Route.COST) and dataflow.by_name[edge.receiver].parallelism == 1:
            tell_no_effect(
                f"{edge.grouping} on the edge {edge}",
                f"{edge.receiver!r} has one instance",
                "give it parallelism=2 or more",
            )
