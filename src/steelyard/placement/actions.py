"""What learners of placements choose from: assignments of threads, or numbers of threads, as vectors of numbers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.kernels.nearest import nearest_assignments_of_each, nearest_counts_of_each

_FARTHEST = 1e6
"""Wishes beyond are cut to this: what is nearest to them is the same."""


class Actions(Hashable, Protocol):
    """Placements of a setup in the form in which a learner has them: integers, and vectors that networks read."""

    @property
    def setup(self) -> Setup:
        """Applications and machines."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one placement's integers."""
        ...

    @property
    def size(self) -> int:
        """Of one placement's vector, whose numbers are from 0 to 1."""
        ...

    def vectors(self, placements: Any, xp: Any = np) -> Any:
        """float32[..., size] for integers[..., *shape]; `xp` is `numpy` or `jax.numpy`."""
        ...

    def nearest(self, protos: Any, most: int) -> Ints:
        """int64[B, most, *shape]: the allowed placements nearest to float[B, size], the nearest first."""
        ...

    def of(self, assignments: Ints) -> Ints:
        """int64[B, *shape] of int64[B, threads]."""
        ...

    def assignment(self, placement: Ints, before: Ints | None = None) -> Ints:
        """int64[threads] of one placement; where threads are alike, as few as can be move."""
        ...


@dataclass(frozen=True)
class Assignments:
    """The machine of each thread: N numbers from 0 to M - 1; as a vector, N * M zeros and ones.

    Examples
    --------
    >>> from steelyard.core.placing import Component, Host
    >>> actions = Assignments(Setup((Component("log", 2, source=True),), (), 3 * (Host(),)))
    >>> actions.vectors(np.array([2, 0])).tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    >>> actions.nearest(np.array([[0.1, 0.2, 0.9, 0.5, 0.4, 0.1]]), most=2).tolist()
    [[[2, 0], [2, 1]]]
    """

    setup: Setup

    def __post_init__(self) -> None:
        if (self.setup.most > np.array([one.parallelism for one in self.setup.operators])).any():
            raise OptionError(
                "this policy places a fixed number of threads, and a component may have more than it starts with: "
                "use 'extra', or make most= the parallelism"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,)"""
        return (self.setup.threads,)

    @property
    def size(self) -> int:
        """N * M"""
        return self.setup.threads * self.setup.machines

    def vectors(self, placements: Any, xp: Any = np) -> Any:
        """Ones where a thread is."""
        hot = placements[..., None] == xp.arange(self.setup.machines)
        return hot.astype(xp.float32).reshape(*placements.shape[:-1], self.size)

    def nearest(self, protos: Any, most: int) -> Ints:
        """By squared distance of the vectors."""
        wished = _wished(protos).reshape(-1, self.setup.threads, self.setup.machines)
        found: Ints = nearest_assignments_of_each(wished, most)
        return found

    def of(self, assignments: Ints) -> Ints:
        """As they are."""
        return assignments

    def assignment(self, placement: Ints, before: Ints | None = None) -> Ints:
        """As it is."""
        return placement


@dataclass(frozen=True)
class Counts:
    """How many threads of each component are on each machine; as a vector, shares of what the component may have.

    Examples
    --------
    >>> from steelyard.core.placing import Component, Host
    >>> actions = Counts(Setup((Component("log", 2, most=4, source=True),), (), 3 * (Host(),)))
    >>> actions.vectors(np.array([[1, 0, 2]])).tolist()
    [0.25, 0.0, 0.5]
    >>> actions.nearest(np.array([[0.3, 0.0, 0.5]]), most=2).tolist()
    [[[[1, 0, 2]], [[2, 0, 2]]]]

    Parameters
    ----------
    setup
        Applications and machines.
    fixed
        Whether components keep the numbers of threads that they start with, and only where those are is chosen.
    """

    setup: Setup
    fixed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, M)"""
        return (len(self.setup.operators), self.setup.machines)

    @property
    def size(self) -> int:
        """C * M"""
        return len(self.setup.operators) * self.setup.machines

    @cached_property
    def _limits(self) -> Ints:
        if self.fixed:
            return np.array([one.parallelism for one in self.setup.operators], dtype=np.int64)
        return self.setup.most

    def vectors(self, placements: Any, xp: Any = np) -> Any:
        """Shares."""
        shares = placements.astype(xp.float32) / xp.asarray(self._limits, dtype=xp.float32)[:, None]
        return shares.reshape(*placements.shape[:-2], self.size)

    def nearest(self, protos: Any, most: int) -> Ints:
        """By squared distance of numbers of threads."""
        wished = _wished(protos).reshape(-1, *self.shape) * self._limits[:, None]
        found: Ints = nearest_counts_of_each(wished, self._limits, self.fixed, most)
        return found

    def of(self, assignments: Ints) -> Ints:
        """Counted."""
        return self.setup.counts(assignments)

    def assignment(self, placement: Ints, before: Ints | None = None) -> Ints:
        """With as few moves as can be."""
        return self.setup.from_counts(placement, before)


def _wished(protos: Any) -> Floats:
    found = np.asarray(protos, dtype=np.float64)
    if np.isnan(found).any():
        raise OptionError("a network wished for a placement that is no number: its training went astray, train it anew")
    return np.clip(found, -_FARTHEST, _FARTHEST)
