"""Balancers of similarity joins, and what triggers them, by name: `"greedy"`, `"imbalance_above?limit=0.5"`."""

from __future__ import annotations

from steelyard.core.registry import Family
from steelyard.similarity.balancer import Balancer
from steelyard.similarity.triggers import Trigger

BALANCERS: Family[Balancer] = Family(
    "steelyard.similarity",
    "balancer",
    ".balance(trigger, balancer) of a similarity join: which worksets move to which worker",
    ("moves",),
    lambda kind: ("similarity join",),
)
TRIGGERS: Family[Trigger] = Family(
    "steelyard.similarity",
    "trigger",
    ".balance(trigger) of a similarity join: when worksets move",
    ("should",),
    lambda kind: ("similarity join",),
)
