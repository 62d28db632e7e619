"""Key groups: the parts in which keys, and what is known of them, go from instance to instance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heappush, heapreplace
from typing import Any

import numpy as np

from steelyard.core.counts import Ints

DEFAULT_GROUPS = 128
"""Of a dataflow that says nothing else."""


@dataclass(frozen=True)
class KeyGroups:
    """Which instance of an operator has which key.

    A key is of the group `hash mod groups`, for ever; instances own equally many groups, but for one. Another number of
    instances moves groups, and never parts one: those that are added take theirs from the others, which keep the rest,
    so that no more groups move than must.

    Parameters
    ----------
    groups
        How many there are. With as many groups as instances, a key is with the instance `hash mod instances`.
    parallelism
        How many instances own them.

    Examples
    --------
    >>> KeyGroups(7, 3).owner.tolist()
    [0, 0, 2, 2, 1, 1, 1]
    >>> KeyGroups(7, 3).owners(np.array([0, 4, -1]))
    array([0, 1, 1], dtype=int32)
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
        return np.array(_owners(self.groups, self.parallelism), np.int32)

    def of(self, hashes: Ints) -> Ints:
        """int64[rows]: the group of each key, by its 64-bit hash, which may be below 0."""
        if self.groups & (self.groups - 1) == 0:  # of a power of two the remainder is the last bits
            return np.asarray(hashes & np.int64(self.groups - 1))
        return np.asarray(np.mod(hashes, self.groups))

    def owners(self, hashes: Ints) -> np.ndarray[Any, np.dtype[np.int32]]:
        """int32[rows]: the instance that has each key."""
        found: np.ndarray[Any, np.dtype[np.int32]] = self.owner[self.of(hashes)]
        return found


@lru_cache(maxsize=512)
def _owners(groups: int, parallelism: int) -> tuple[int, ...]:
    """Who owns each group: instance n takes its groups from those before it, one by one from who has most."""
    if parallelism == groups:
        return tuple(range(groups))
    owned = [list(range(groups))]
    most = [(-groups, 0)]
    for number in range(1, parallelism):
        taken = []
        for _ in range(groups // (number + 1)):
            many, whose = most[0]
            taken.append(owned[whose].pop())
            heapreplace(most, (many + 1, whose))
        owned.append(taken)
        heappush(most, (-len(taken), number))
    owner = np.empty(groups, np.int64)
    for number, some in enumerate(owned):
        owner[some] = number
    return tuple(owner.tolist())
