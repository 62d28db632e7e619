"""Exact similarity joins of streams: metrics, the cut of their space, and who computes what."""

from steelyard.similarity.balancer import Balancer, Greedy, Move, WorksetLoad, imbalance
from steelyard.similarity.custom import FunctionMetric
from steelyard.similarity.learned import Bandit
from steelyard.similarity.members import Members, Rows
from steelyard.similarity.metrics import METRICS, Metric, counterexample, metric
from steelyard.similarity.partitions import SpacePartitions
from steelyard.similarity.triggers import EveryWindow, ImbalanceAbove, LatencyAbove, Trigger, WorkersSeen
from steelyard.similarity.window_join import WindowJoin, Windows
from steelyard.similarity.worksets import Formulation

__all__ = [
    "METRICS",
    "Balancer",
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
    "WorkersSeen",
    "WorksetLoad",
    "counterexample",
    "imbalance",
    "metric",
]
