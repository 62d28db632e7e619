"""Weights of a scenario's edges: which have any, which hold, and which an action may give."""

from __future__ import annotations

from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.weights import Ends, Weights, require_weights, shown_weights
from steelyard.sim.dataflow import Edge
from steelyard.sim.scenario import Scenario


def has_weights(edge: Edge) -> bool:
    """Whether tuples of an edge are dealt out in turn, and so can be by weights."""
    return edge.built_in in ("shuffle", "round_robin")


def held_weights(scenario: Scenario, weights: Weights) -> dict[Ends, tuple[int, ...]]:
    """By edge that has weights: those that are given and fit, otherwise 1 for each instance."""
    return shown_weights(scenario, has_weights, weights)


def more_weights(scenario: Scenario, held: Weights, given: Weights) -> dict[Ends, tuple[int, ...]]:
    """Those that hold, with others; OptionError where an edge cannot have them."""
    require_weights(scenario, has_weights, given)
    return held_weights(scenario, {**held, **given})


def rescaled_by(scenario: Scenario, action: Action) -> Scenario:
    """The scenario with the numbers of an action; ActionRefusedError where the weights of that do not fit it."""
    found = scenario.rescaled(action.parallelism)
    try:
        require_weights(found, has_weights, action.weights)
    except OptionError as error:
        raise ActionRefusedError(str(error)) from error
    return found
