"""Exact similarity joins of streams: metrics, the cut of their space, and who computes what."""

from steelyard.core.worksets import WorksetLoad
from steelyard.similarity.balancer import Balancer, Greedy, Move, imbalance
from steelyard.similarity.balancing import Balancing, balancing
from steelyard.similarity.custom import FunctionMetric
from steelyard.similarity.learned import Bandit
from steelyard.similarity.members import Members, Rows
from steelyard.similarity.metrics import METRICS, Metric, counterexample, metric
from steelyard.similarity.partitions import SpacePartitions
from steelyard.similarity.triggers import EveryWindow, ImbalanceAbove, LatencyAbove, Trigger
from steelyard.similarity.window_join import WindowJoin, Windows
from steelyard.similarity.worksets import Formulation

__all__ = [
    "METRICS",
    "Balancer",
    "Balancing",
    "Bandit",
    "EveryWindow",
    "Formulation",
    "FunctionMetric",
    "Greedy",
    "ImbalanceAbove",
    "LatencyAbove",
    "Members",
    "Metric",
    "Move",
    "Rows",
    "SpacePartitions",
    "Trigger",
    "WindowJoin",
    "Windows",
    "WorksetLoad",
    "balancing",
    "counterexample",
    "imbalance",
    "metric",
]
