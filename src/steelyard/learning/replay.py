"""What a learner has lived through: the newest transitions, drawn from uniformly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.core.errors import OptionError

Arrays = dict[str, np.ndarray[Any, Any]]


class Replay:
    """A buffer of transitions; where it is full, the oldest ones leave first.

    Parameters
    ----------
    capacity
        How many it keeps.
    fields
        What a transition is made of: a name, and the shape and type of its values.

    Examples
    --------
    >>> replay = Replay(2, {"reward": ((), np.float32)})
    >>> replay.add(reward=[1.0, 2.0, 3.0])
    >>> len(replay), replay.all()["reward"].tolist()
    (2, [2.0, 3.0])
    """

    def __init__(self, capacity: int, fields: Mapping[str, tuple[Sequence[int], Any]]) -> None:
        if capacity < 1:
            raise OptionError(f"a replay buffer keeps at least one transition, got capacity={capacity}")
        self.capacity = capacity
        self._kept: Arrays = {name: np.zeros((capacity, *shape), kind) for name, (shape, kind) in fields.items()}
        self._next, self._filled = 0, 0

    def __len__(self) -> int:
        return self._filled

    def add(self, **transitions: Any) -> None:
        """Transitions in the order in which they were: each field is an array with one entry for each of them."""
        if transitions.keys() != self._kept.keys():
            raise OptionError(f"a transition has {sorted(self._kept)}, got {sorted(transitions)}")
        given = {name: np.asarray(values) for name, values in transitions.items()}
        counts = {len(values) for values in given.values()}
        if len(counts) != 1:
            raise OptionError(f"fields of transitions have different lengths: {sorted(counts)}")
        for name, values in given.items():
            if values.shape[1:] != self._kept[name].shape[1:]:
                raise OptionError(f"{name} of a transition is {self._kept[name].shape[1:]}, got {values.shape[1:]}")
        count = counts.pop()
        kept = min(count, self.capacity)
        places = (self._next + count - kept + np.arange(kept)) % self.capacity
        for name, values in given.items():
            self._kept[name][places] = values[count - kept :]
        self._next = (self._next + count) % self.capacity
        self._filled = min(self.capacity, self._filled + count)

    def draw(self, random: np.random.Generator, count: int) -> Arrays:
        """So many transitions, each as likely as any other; one may come twice."""
        if not self._filled:
            raise OptionError("an empty replay buffer was asked for transitions: add some first")
        return self.at(random.integers(self._filled, size=count))

    def at(self, places: np.ndarray[Any, Any]) -> Arrays:
        """The transitions at these places, of which there are as many as `len` says; their order means nothing."""
        return {name: values[places] for name, values in self._kept.items()}

    def state(self) -> Arrays:
        """What it keeps, where it keeps it: after `restore` the same places are drawn."""
        return {name: values[: self._filled] for name, values in self._kept.items()} | {
            "": np.array([self._next, self._filled])
        }

    def restore(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from it."""
        self._next, self._filled = state[""].tolist()
        for name, values in self._kept.items():
            values[: self._filled] = state[name]

    def all(self) -> Arrays:
        """All of them, the oldest first."""
        return self.at((self._next - self._filled + np.arange(self._filled)) % self.capacity)
