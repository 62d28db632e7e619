"""The vocabulary that measuring, deciding and acting share: small frozen dataclasses and protocols."""

from steelyard.core.control import (
    BLOCKS,
    BUCKETS,
    Action,
    ActionRefusedError,
    BatchObservation,
    Controllable,
    InstanceObservation,
    Observation,
    OperatorObservation,
    ScalingPolicy,
    TaskObservation,
    Timed,
    WorkerObservation,
)
from steelyard.core.counts import KeyCounts
from steelyard.core.errors import BadRowError, BatchError, OptionError, StateError, SteelyardError
from steelyard.core.notices import NoEffectWarning, tell_no_effect
from steelyard.core.plans import BlockPlan, BucketPlan, RowRule
from steelyard.core.policies import (
    Batched,
    BucketAllocator,
    Cooperative,
    Insisting,
    Learning,
    Observing,
    Partitioner,
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
    "ActionRefusedError",
    "BadRowError",
    "BatchError",
    "BatchObservation",
    "Batched",
    "BlockPlan",
    "BucketAllocator",
    "BucketPlan",
    "Controllable",
    "Cooperative",
    "Insisting",
    "InstanceObservation",
    "KeyCounts",
    "Learning",
    "NoEffectWarning",
    "Observation",
    "Observing",
    "OperatorObservation",
    "OptionError",
    "Partitioner",
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
    "WorkerObservation",
    "tell_no_effect",
]
