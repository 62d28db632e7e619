"""Trained weights: those that ship with the package, those of a file, and what a user is told where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steelyard.core import StateError
from steelyard.learning import Network, Trained, once_per_file
from steelyard.partition.learned.actions import level
from steelyard.partition.learned.features import BLOCK, VALUE, WHOLE

POLICY = "partly"
SHIPPED = Path(__file__).with_name("partly.npz")
FEATURES = 1
"""Version of what the networks see; weights for another one are refused."""


class Weights(NamedTuple):
    """What is learnt."""

    actor: Any
    critic: Any


def packed(weights: Weights) -> dict[str, np.ndarray[Any, Any]]:
    """As named arrays."""
    actor, critic = Network.of(weights.actor, "relu"), Network.of(weights.critic)
    return actor.arrays("actor") | critic.arrays("critic")


def unpacked(arrays: Mapping[str, np.ndarray[Any, Any]], kinds: int) -> Weights:
    """The inverse of `packed`; StateError where they are not of this shape."""
    actor, critic = Network.from_arrays("actor", arrays, "relu"), Network.from_arrays("critic", arrays)
    ends = (actor.sizes[0], actor.sizes[-1], critic.sizes[0], critic.sizes[-1])
    if len(actor.sizes) != 3 or ends != (BLOCK + WHOLE, kinds, WHOLE + VALUE, 1):
        raise StateError(f"these weights are of networks of {actor.sizes} and {critic.sizes}: train them again")
    return Weights(actor.layers, critic.layers)


def shapes(actions: int) -> dict[str, int]:
    """What a file of weights says of itself."""
    return {"features": FEATURES, "actions": actions}


@once_per_file
def load(path: Path) -> Weights:
    """Weights for use, whose actions are of level 3; StateError, in one sentence, where there are none."""
    found = Trained.load(path, POLICY)
    found.require(**shapes(3))
    return unpacked(found.arrays, level(3).kinds)
