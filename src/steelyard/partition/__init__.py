"""Partitioners: who goes into which block, decided from key counts. One policy a file."""

from steelyard.partition.allocator import HashAllocator, PromptAllocator
from steelyard.partition.hash import Hash
from steelyard.partition.prompt import Prompt
from steelyard.partition.registry import partitioner, partitioner_names, policy, tuple_policy
from steelyard.partition.shuffle import Shuffle
from steelyard.partition.time import TimeBased

__all__ = [
    "Hash",
    "HashAllocator",
    "Prompt",
    "PromptAllocator",
    "Shuffle",
    "TimeBased",
    "partitioner",
    "partitioner_names",
    "policy",
    "tuple_policy",
]
