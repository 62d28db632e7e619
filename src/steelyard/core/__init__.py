"""The vocabulary that measuring, deciding and acting share: small frozen dataclasses and protocols."""

from steelyard.core.counts import KeyCounts
from steelyard.core.errors import BadRowError, OptionError, SteelyardError
from steelyard.core.plans import BlockPlan, BucketPlan, RowRule
from steelyard.core.policies import BucketAllocator, ElasticityPolicy, Partitioner
from steelyard.core.reports import BatchReport, Observation, ScalingDecision, TaskReport

__all__ = [
    "BadRowError",
    "BatchReport",
    "BlockPlan",
    "BucketAllocator",
    "BucketPlan",
    "ElasticityPolicy",
    "KeyCounts",
    "Observation",
    "OptionError",
    "Partitioner",
    "RowRule",
    "ScalingDecision",
    "SteelyardError",
    "TaskReport",
]
