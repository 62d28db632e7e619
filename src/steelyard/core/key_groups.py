"""Key groups: the parts in which keys, and what is known of them, go from instance to instance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from steelyard.core.counts import Ints

DEFAULT_GROUPS = 128
"""Of a dataflow that says nothing else."""


@dataclass(frozen=True)
class KeyGroups:
    """Which instance of an operator has which key.

    A key is of the group `hash mod groups`, for ever; instances own contiguous ranges of groups, which differ in length
    by one at most. Another number of instances moves groups, and never parts one.

    Parameters
    ----------
    groups
        How many there are. With as many groups as instances, a key is with the instance `hash mod instances`.
    parallelism
        How many instances own them.

    Examples
    --------
    >>> KeyGroups(7, 3).owner.tolist()
    [0, 0, 0, 1, 1, 2, 2]
    >>> KeyGroups(7, 3).owners(np.array([0, 4, -1]))
    array([0, 1, 2], dtype=int32)
    """

    groups: int
    parallelism: int

    def __post_init__(self) -> None:
        if not 1 <= self.parallelism <= self.groups:
            raise ValueError(
                f"{self.parallelism} instances cannot share {self.groups} key groups: each has at least one"
            )

    @cached_property
    def owner(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """int32[groups]: the instance that owns each group."""
        return (np.arange(self.groups, dtype=np.int64) * self.parallelism // self.groups).astype(np.int32)

    def of(self, hashes: Ints) -> Ints:
        """int64[rows]: the group of each key, by its 64-bit hash, which may be below 0."""
        if self.groups & (self.groups - 1) == 0:  # of a power of two the remainder is the last bits
            return np.asarray(hashes & np.int64(self.groups - 1))
        return np.asarray(np.mod(hashes, self.groups))

    def owners(self, hashes: Ints) -> np.ndarray[Any, np.dtype[np.int32]]:
        """int32[rows]: the instance that has each key."""
        found: np.ndarray[Any, np.dtype[np.int32]] = self.owner[self.of(hashes)]
        return found
