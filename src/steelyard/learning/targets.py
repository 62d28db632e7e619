"""Target networks: copies that follow a network slowly, so that it does not chase its own newest guess."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.core.errors import OptionError
from steelyard.learning.networks import Layers


@dataclass(frozen=True)
class Soft:
    """After every step, a small part of the network: target = tau * network + (1 - tau) * target.

    Examples
    --------
    >>> ((weights, offsets),) = Soft(0.25).followed(((8.0, 0.0),), ((0.0, 4.0),), step=1)
    >>> weights, offsets
    (2.0, 3.0)
    """

    tau: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.tau <= 1:
            raise OptionError(f"tau of a target network is above 0 and at most 1, got {self.tau}")

    def followed(self, network: Layers, target: Layers, step: int) -> Layers:
        """The target after a step; arrays of NumPy or JAX, also while JAX traces."""
        return _mixed(network, target, self.tau)


@dataclass(frozen=True)
class Periodic:
    """A copy of the network after every so many steps, and nothing in between.

    Examples
    --------
    >>> copies = Periodic(10)
    >>> copies.followed(((8.0, 0.0),), ((0.0, 4.0),), step=9), copies.followed(((8.0, 0.0),), ((0.0, 4.0),), step=10)
    (((0.0, 4.0),), ((8.0, 0.0),))
    """

    every: int = 10

    def __post_init__(self) -> None:
        if self.every < 1:
            raise OptionError(f"a target network is copied after every 1 step or more, got every={self.every}")

    def followed(self, network: Layers, target: Layers, step: int) -> Layers:
        """The target after a step, counted from 1: a plain number, not one that JAX traces."""
        return network if step % self.every == 0 else target


def _mixed(network: Layers, target: Layers, share: float) -> Layers:
    return tuple(
        (share * weights + (1 - share) * old_weights, share * offsets + (1 - share) * old_offsets)
        for (weights, offsets), (old_weights, old_offsets) in zip(network, target, strict=True)
    )
