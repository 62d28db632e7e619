"""The vocabulary that measuring, deciding and acting share: small frozen dataclasses and protocols."""

from steelyard.core.counts import KeyCounts
from steelyard.core.errors import BadRowError, BatchError, OptionError, StateError, SteelyardError
from steelyard.core.notices import NoEffectWarning, tell_no_effect
from steelyard.core.parallelism import (
    DataflowObservation,
    OperatorObservation,
    ParallelismDecision,
    ParallelismPolicy,
)
from steelyard.core.plans import BlockPlan, BucketPlan, RowRule
from steelyard.core.policies import (
    Batched,
    BucketAllocator,
    Cooperative,
    ElasticityPolicy,
    Learning,
    Observing,
    Partitioner,
    Routed,
    Router,
    State,
    TuplePolicy,
)
from steelyard.core.reports import BatchReport, JoinReport, Observation, ScalingDecision, TaskReport

__all__ = [
    "BadRowError",
    "BatchError",
    "BatchReport",
    "Batched",
    "BlockPlan",
    "BucketAllocator",
    "BucketPlan",
    "Cooperative",
    "DataflowObservation",
    "ElasticityPolicy",
    "JoinReport",
    "KeyCounts",
    "Learning",
    "NoEffectWarning",
    "Observation",
    "Observing",
    "OperatorObservation",
    "OptionError",
    "ParallelismDecision",
    "ParallelismPolicy",
    "Partitioner",
    "Routed",
    "Router",
    "RowRule",
    "ScalingDecision",
    "State",
    "StateError",
    "SteelyardError",
    "TaskReport",
    "TuplePolicy",
    "tell_no_effect",
]
