"""Random numbers of learning: one seed, and a stream of its own for each purpose; values that fade over steps."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from steelyard.core.errors import OptionError


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers for one purpose: what another purpose draws does not change them.

    >>> one, same = generator(7, "replay"), generator(7, "replay")
    >>> bool(one.random() == same.random()), bool(one.random() == generator(7, "noise").random())
    (True, False)
    """
    if seed < 0:
        raise OptionError(f"a seed is a whole number, 0 or more, got {seed}")
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]))


@dataclass(frozen=True)
class Fading:
    """A value that goes linearly from `first` to `last` over so many steps, and stays there.

    Examples
    --------
    >>> chance = Fading(1.0, 0.0, steps=10)
    >>> chance.at(0), chance.at(5), chance.at(50)
    (1.0, 0.5, 0.0)
    """

    first: float
    last: float
    steps: int

    def at(self, step: int) -> float:
        """The value at a step, counted from 0."""
        done = min(1.0, step / self.steps) if self.steps > 0 else 1.0
        return self.first + (self.last - self.first) * done
