"""The loop that all engines share: look at a job, let a policy decide, let guards say what may be done, and do it."""

from steelyard.control.controller import Controller, Decision, require_shown
from steelyard.control.feed import Feed, on_progress
from steelyard.control.guards import Bounds, Budget, Cap, Cooldown, Dwell, Guard, LargestStep
from steelyard.control.listeners import Metrics, ProgressFile

__all__ = [
    "Bounds",
    "Budget",
    "Cap",
    "Controller",
    "Cooldown",
    "Decision",
    "Dwell",
    "Feed",
    "Guard",
    "LargestStep",
    "Metrics",
    "ProgressFile",
    "on_progress",
    "require_shown",
]
