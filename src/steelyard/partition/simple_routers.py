"""What routers share, and the two that look at nothing but the key or the turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from steelyard.core import OptionError, Routed, State
from steelyard.core.counts import Ints
from steelyard.core.plans import at_least_one_block

WINDOW = 60_000
"""Default window, in units of `times` (Zapridou, Mytilinis, Ailamaki 2022, section 5.1)."""
SLIDE = 1_000
"""Default slide, from the same place."""


class ArrayRouter:
    """A router whose whole state is arrays; a kind of router writes `_route` and says whether it splits keys.

    Parameters
    ----------
    name
        The policy that it follows, for errors.
    blocks
        Number of blocks.
    parts
        Its structures by name, each a named tuple of arrays. Compiled loops change them in place.
    """

    def __init__(self, name: str, blocks: int, parts: Mapping[str, Any]) -> None:
        at_least_one_block(blocks)
        self.name = name
        self.blocks = blocks
        self._parts = dict(parts)

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Blocks for rows in order of arrival; `times` never falls."""
        # a read-only array would be another type to the compiler, and compile everything once more
        ids = np.require(keys, np.int64, ["C", "W"])
        moments = np.require(times, np.int64, ["C", "W"])
        if ids.ndim != 1 or ids.shape != moments.shape:
            raise ValueError(f"one time a key: got keys of shape {ids.shape} and times of shape {moments.shape}")
        routed = Routed(np.empty(len(ids), np.int32), np.empty(len(ids), np.bool_))
        self._route(ids, moments, routed)
        return routed

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        raise NotImplementedError

    def state(self) -> State:
        """Copies of all arrays, named `part.field`, and the number of blocks."""
        arrays = {
            f"{part}.{field}": array.copy()
            for part, fields in self._parts.items()
            for field, array in fields._asdict().items()
        }
        return {"blocks": np.array(self.blocks, np.int64), **arrays}

    def restore(self, state: State) -> None:
        """Go on as the router that gave this state would."""
        learnt_for = int(state["blocks"]) if "blocks" in state else 0
        if learnt_for != self.blocks:
            raise OptionError(
                f"a state of {self.name} for {learnt_for} blocks cannot go on with blocks={self.blocks}: "
                "begin with a new router"
            )
        for part, fields in self._parts.items():
            names = [f"{part}.{field}" for field in fields._fields]
            missing = [name for name in names if name not in state]
            if missing:
                raise OptionError(f"a state of {self.name} has {missing[0]!r}, this one has not: {sorted(state)}")
            kept = zip(fields, names, strict=True)
            self._parts[part] = type(fields)(*(np.array(state[name], array.dtype) for array, name in kept))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.blocks} blocks)"


class HashRouter(ArrayRouter):
    """Every row to the hash block of its key: `id mod blocks`, where Spark's own hash would send it.

    Examples
    --------
    >>> HashRouter(4).route(np.array([5, -1, 5]), np.arange(3)).block.tolist()
    [1, 3, 1]
    """

    policy: ClassVar[str] = "hash"

    def __init__(self, blocks: int, partitioner: int = 0) -> None:
        super().__init__(self.policy, blocks, {})

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        from steelyard.kernels.choices import route_home  # noqa: PLC0415 - tasks need no compiler

        route_home(keys, self.blocks, routed.block)
        routed.split[:] = False


class ShuffleRouter(ArrayRouter):
    """The i-th row to block `i mod blocks`; a partitioner with another number begins at another block.

    Examples
    --------
    >>> ShuffleRouter(3).route(np.array([5, 5, 5, 5]), np.arange(4)).block.tolist()
    [0, 1, 2, 0]
    """

    policy: ClassVar[str] = "shuffle"

    def __init__(self, blocks: int, partitioner: int = 0) -> None:
        super().__init__(self.policy, blocks, {})
        self._next = partitioner % blocks

    def _route(self, keys: Ints, times: Ints, routed: Routed) -> None:
        from steelyard.kernels.choices import route_in_turn  # noqa: PLC0415 - tasks need no compiler

        route_in_turn(self._next, self.blocks, routed.block)
        self._next = (self._next + len(keys)) % self.blocks
        routed.split[:] = self.blocks > 1

    def state(self) -> State:
        """The block that the next row goes to."""
        return {**super().state(), "next": np.array(self._next, np.int64)}

    def restore(self, state: State) -> None:
        """Go on in the same turn."""
        super().restore(state)
        self._next = int(state["next"])


def slides_in(window: int, slide: int) -> int:
    """How many slides a window has; 0 for a window of 0, which never ends.

    >>> slides_in(60_000, 1_000), slides_in(25, 10), slides_in(0, 1_000)
    (60, 3, 0)
    """
    return -(-window // slide)


def require_window(policy: str, window: int, slide: int) -> None:
    """Raise OptionError unless a policy's window and slide can be."""
    require_at_least("window", policy, window, 0, "0 counts from the start and forgets nothing")
    require_at_least("slide", policy, slide, 1, "loads are brought up to date once a slide")
    if 0 < window < slide:
        raise OptionError(
            f"slide={slide} of {policy} is longer than window={window}: give a slide of at most the window"
        )


def require_at_least(option: str, policy: str, value: float, least: float, why: str) -> None:
    """Raise OptionError, which says why, for an option below its least value."""
    if not value >= least:
        raise OptionError(f"{option} of {policy} must be {least} or more, got {value}: {why}")
