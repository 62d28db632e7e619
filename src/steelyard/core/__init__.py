"""The vocabulary that measuring, deciding and acting share: small frozen dataclasses and protocols."""

from steelyard.core.control import (
    BLOCKS,
    BUCKETS,
    Action,
    BatchObservation,
    Controllable,
    Observation,
    OperatorObservation,
    ScalingPolicy,
    TaskObservation,
    Timed,
)
from steelyard.core.counts import KeyCounts
from steelyard.core.errors import BadRowError, BatchError, OptionError, StateError, SteelyardError
from steelyard.core.notices import NoEffectWarning, tell_no_effect
from steelyard.core.plans import BlockPlan, BucketPlan, RowRule
from steelyard.core.policies import (
    Batched,
    BucketAllocator,
    Cooperative,
    Learning,
    Observing,
    Partitioner,
    Placer,
    Routed,
    Router,
    State,
    TuplePolicy,
)
from steelyard.core.progress import Progress

__all__ = [
    "BLOCKS",
    "BUCKETS",
    "Action",
    "BadRowError",
    "BatchError",
    "BatchObservation",
    "Batched",
    "BlockPlan",
    "BucketAllocator",
    "BucketPlan",
    "Controllable",
    "Cooperative",
    "KeyCounts",
    "Learning",
    "NoEffectWarning",
    "Observation",
    "Observing",
    "OperatorObservation",
    "OptionError",
    "Partitioner",
    "Placer",
    "Progress",
    "Routed",
    "Router",
    "RowRule",
    "ScalingPolicy",
    "State",
    "StateError",
    "SteelyardError",
    "TaskObservation",
    "Timed",
    "TuplePolicy",
    "tell_no_effect",
]
