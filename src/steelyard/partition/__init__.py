"""Partitioners: who goes into which block, decided for a batch or row by row. One policy a file."""

from steelyard.partition.accumulator import Accumulated, Accumulator
from steelyard.partition.adapters import PlannedByRouting, RoutedByPlan
from steelyard.partition.allocator import HashAllocator, PromptAllocator, allocator
from steelyard.partition.cooperation import CooperativeDalton
from steelyard.partition.dalton import Dalton
from steelyard.partition.early_release import DoubleBuffer, EarlyRelease
from steelyard.partition.hash import Hash
from steelyard.partition.prompt import Prompt
from steelyard.partition.registry import edge_policy, partitioner, partitioner_names, policy, tuple_policy
from steelyard.partition.shuffle import Shuffle
from steelyard.partition.time import TimeBased

__all__ = [
    "Accumulated",
    "Accumulator",
    "CooperativeDalton",
    "Dalton",
    "DoubleBuffer",
    "EarlyRelease",
    "Hash",
    "HashAllocator",
    "PlannedByRouting",
    "Prompt",
    "PromptAllocator",
    "RoutedByPlan",
    "Shuffle",
    "TimeBased",
    "allocator",
    "edge_policy",
    "partitioner",
    "partitioner_names",
    "policy",
    "tuple_policy",
]
