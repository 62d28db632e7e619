"""Clusters on which placements of threads are tried: tuple by tuple, and fast by formulas, behind one interface."""

from steelyard.sim.placed.clocks import Clocks
from steelyard.sim.placed.costs import Application, ClusterCosts, Deployed, Flow, Unit
from steelyard.sim.placed.exact import ExactCluster
from steelyard.sim.placed.fast import FastCluster
from steelyard.sim.placed.frozen import deployed, setups

__all__ = [
    "Application",
    "Clocks",
    "ClusterCosts",
    "Deployed",
    "ExactCluster",
    "FastCluster",
    "Flow",
    "Unit",
    "deployed",
    "setups",
]
