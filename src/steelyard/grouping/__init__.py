"""Groupings: which of several equal instances a tuple goes to, decided by what it will cost. One policy a file."""

from steelyard.grouping.compiled import CompiledGrouping, CompiledInstance, CompiledScheduler
from steelyard.grouping.full_knowledge import FullKnowledge
from steelyard.grouping.osg import OSG
from steelyard.grouping.protocol import Chosen, Grouping, Instance, Matrices, Reply, Report, Requests, Scheduler
from steelyard.grouping.registry import grouping, grouping_names
from steelyard.grouping.round_robin import RoundRobin
from steelyard.grouping.shortest import Shortest
from steelyard.grouping.splitting import TimeSplitter
from steelyard.grouping.storm_shuffle import StormShuffle
from steelyard.grouping.tracking import TrackingOSG

__all__ = [
    "OSG",
    "Chosen",
    "CompiledGrouping",
    "CompiledInstance",
    "CompiledScheduler",
    "FullKnowledge",
    "Grouping",
    "Instance",
    "Matrices",
    "Reply",
    "Report",
    "Requests",
    "RoundRobin",
    "Scheduler",
    "Shortest",
    "StormShuffle",
    "TimeSplitter",
    "TrackingOSG",
    "grouping",
    "grouping_names",
]
